"""Studies: many runs, launched and evaluated together.

``figures/`` regenerates the figures of published works.

The modules ``search_*`` search hyper-parameters and account for the privacy cost of all trials together.
Begin with ``search_run``, the loop of a search. ``search_budget`` composes the ledgers of the trials,
``search_planned`` bounds the releases of a trial, and ``search_space`` reads Hydra's sweep syntax.
``search_secret_trials`` shows only the best of a secret number of trials, by the bound in
``search_stopping``. The Hydra sweepers that call this package are in ``hydra_plugins/fedpriv.py``.
"""
