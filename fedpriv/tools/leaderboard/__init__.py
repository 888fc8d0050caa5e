"""The command ``fedpriv leaderboard``: entries that anyone can reproduce, and the page that shows them.

Begin with ``entry``: an entry is one JSON file, which may come from another person. ``measured`` reads
accuracy and ε from a finished run, and ``gather`` joins the runs of several seeds to an entry. ``trial`` runs
an entry again and judges it, ``under_attack`` does so under the attacks of ``attack_sets``, and ``page``
writes the tables. ``overrides`` and ``code`` restrict what an entry may make ``fedpriv leaderboard check``
execute.
"""
