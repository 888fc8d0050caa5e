"""The command ``fedpriv verify``, which tests that a run does what its privacy ledger says.

Begin with ``checks``, which makes all checks in order. ``subject`` starts the run of a configuration in
variations, ``probes`` records what the run reads and releases, and ``ledger_claims`` reads the ledger. Each
kind of check is a module: ``noise``, ``repeat_runs``, ``draws``, ``directions``, ``discreteness``,
``chance``, ``sensitivity``, ``units``, ``sampling``, ``lots``, ``shares``, ``correlated``, ``charge``,
``outgoing``, ``side_channels`` and ``files``. ``statistics`` has the exact p-values, ``table`` the verdicts.
"""
