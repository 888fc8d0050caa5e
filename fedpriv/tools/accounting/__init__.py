"""``fedpriv account`` and ``fedpriv calibrate``: the privacy cost of releases, without running anything.

Begin with ``account`` and ``calibrate``. The releases come from flags, a schedule or the ledger of a run
(``releases``).
"""
