"""``fedpriv verify``: whether the mechanism that a configuration names does what its ledger says."""
