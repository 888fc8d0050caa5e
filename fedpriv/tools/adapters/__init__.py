"""``fedpriv verify --adapter``: the checks of a mechanism that is not fedpriv's, in a process of its own.

Begin with ``command``. ``server`` runs in the other process and needs numpy only; ``process`` speaks with it.
``claim`` reads what the adapter claims, ``subject`` makes data and runs rounds. Each kind of check is a
module: ``noise``, ``members`` (who takes part), ``sensitivity``, ``charge`` (ε, and ε from below), and
``distributions`` where the seed cannot be held still.
"""
