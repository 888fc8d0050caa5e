"""``fedpriv runs``: the runs below folders as a table."""
