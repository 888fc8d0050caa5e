"""Privacy: releases, their noise, and their cost.

Begin with ``mechanisms/``, where noise and charge come from one description. ``budget`` charges the releases
of a round and keeps the ``ledger``. ``sound`` says which ε holds, and ``calibration``
solves for a noise multiplier. ``noise_schedules`` (base class in ``noise_schedule``), ``clippers/`` and
``accountants/`` are groups of the configuration. ``matrix/`` has the strategies of correlated noise, and
``core/`` the samplers and the mathematics below all of these. ``random_stopping``, ``wei_bounds`` and
``groups`` are theorems that commands and figures use. No module here imports torch at import time, so that a
dry run plans an experiment without torch.
"""
