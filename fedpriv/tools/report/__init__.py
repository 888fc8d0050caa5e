"""``fedpriv report``: runs, sweeps and figures as one HTML page that needs nothing else.

Begin with ``write``. ``gather`` reads a stored run for the report; the folder may be somebody else's.
``page`` puts the page together from ``sections`` about a run, ``figure``, ``search``, and ``curves``, which
``charts`` draws as SVG. ``markup`` escapes every text. ``page.css`` and ``page.js`` are embedded in the page.
"""
