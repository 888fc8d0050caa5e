"""``fedpriv leaderboard``: entries that anyone can run again, and the page that shows them.

Begin with ``entry`` (one JSON file, perhaps somebody else's). ``measured`` takes accuracy and ε from a
finished run, ``gather`` joins the runs of several seeds, ``trial`` runs an entry again and judges it,
``page`` writes the table.
"""
