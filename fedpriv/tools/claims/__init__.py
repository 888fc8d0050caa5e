"""``fedpriv claims``: a table of published guarantees, each with a demonstration that anyone can repeat.

Begin with ``row``: a row is a YAML in ``conf/claims``. ``epsilon`` computes its ε by fedpriv's accountants
and by ``second``, which uses none of them. ``demonstrate`` runs a row, in an ``environment`` of its own
where it tests software. ``page`` writes ``docs/claims.md``.
"""
