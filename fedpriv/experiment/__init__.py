"""One experiment: compose, check, plan, run, and leave a privacy statement.

Begin with ``run``. ``build`` makes the objects of all groups (``parts``), each of which refuses
what it does not go with (``conflicts``), ``plan`` forecasts rounds and ε, ``assemble`` adds data, model,
budget and folder, ``loop`` runs the rounds while ``observers`` look on. ``checkpoint`` and ``snapshots``
save, ``report`` writes what is left behind. Code of the user's own goes through ``consent``, ``own_code``,
``own_state``, ``uncalled`` and ``stamps``. ``tracker`` and ``trackers`` show a run elsewhere; ``sweeps`` and
``preflight`` check many jobs before the first.
"""
