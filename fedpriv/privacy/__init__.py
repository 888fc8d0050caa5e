"""Privacy: what is released, how it is noised, and what it costs.

Begin with ``mechanisms/``: noise and charge come from one description. ``budget`` charges the releases of a
round and keeps the ``ledger``; ``sound`` and ``recount`` account for a ledger again, ``calibration`` solves
for a noise multiplier. ``noise_schedules`` (base class in ``noise_schedule``) and ``clippers/`` are groups
of the configuration, ``accountants/`` as well. ``matrix/`` has the strategies of correlated noise, ``core/``
the samplers and the mathematics below all of these. ``shuffling``, ``random_stopping``, ``wei_bounds`` and
``groups`` are theorems that commands and figures use. Nothing here imports torch when imported: a dry run
plans an experiment without it.
"""
