"""``fedpriv verify``: tests that the mechanism which a configuration names does what its ledger says.

Begin with ``checks`` (all of them, in order). ``subject`` starts the run of the configuration in variations,
``probes`` records what the run reads and releases, ``ledger_claims`` reads the ledger. Each check is a
module: ``noise``, ``repeat_runs``, ``draws``, ``directions``, ``sensitivity``, ``sampling``, ``lots``,
``units``, ``shares``, ``charge``, ``outgoing`` (noise and sensitivity of what leaves), ``side_channels``,
``files``. ``statistics`` has the exact p-values, ``table`` the verdict.
"""
