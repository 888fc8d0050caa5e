"""``fedpriv verify``: whether the mechanism that a configuration names does what its ledger says.

Begin with ``checks`` (all of them, in order). ``subject`` starts the run of the configuration in variations,
``taps`` records what it reads and releases, ``stated`` reads the ledger. Each check is a module: ``noise``,
``again``, ``draws``, ``directions``, ``sensitivity``, ``sampling``, ``lots``, ``units``, ``shares``,
``charge``, ``left``, ``outside``, ``files``, ``resumed``. ``statistics`` has the exact p-values, ``table``
the verdict.
"""
