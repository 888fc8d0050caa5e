"""One experiment: compose, check, plan, run, and leave a privacy statement.

Begin with ``run``, which calls the modules in this order. ``build`` makes the objects of all groups
(``parts``); each refuses what it does not go with (``contracts``). ``plan`` forecasts the rounds and ε.
``assemble`` adds data, model, budget, folder and streams. ``loop`` runs the rounds, while ``observers``
look on; ``checkpoint`` and ``snapshots`` save. ``report`` writes the files at the end.

Code of the user's own goes through ``consent``, ``own_code`` and ``stamps``.
``tracker`` and ``trackers`` show a run elsewhere. ``sweeps`` and ``preflight`` check many jobs before the
first.
"""
