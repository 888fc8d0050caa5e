"""Studies: what launches many runs and puts their results together.

``figures/`` regenerates the figures of published works. The modules ``search_*`` search hyper-parameters and
account for the privacy cost of all trials together: begin with ``search_run``; ``search_budget`` composes
the ledgers of the trials, ``search_planned`` says what a trial may release, ``search_space`` reads Hydra's
sweep syntax. ``search_secret_trials`` shows only the best of a secret number of trials, by the bound in
``search_stopping``. The Hydra sweepers that call this room are in ``hydra_plugins/fedpriv.py``.
"""
