"""``fedpriv report``: runs, sweeps and figures as one HTML page that needs nothing else.

Begin with ``write``. ``gather`` reads a stored run for the report (the folder may be damaged or untrusted),
``sections`` describe it, ``charts`` draw SVG, and every text is escaped in ``markup``. ``page.css`` and
``page.js`` go into the page.
"""
