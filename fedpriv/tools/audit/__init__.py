"""``fedpriv audit``: what an attacker finds out from a run, beside what the run's ε promises.

An audit is a lower bound: if these attacks fail, others may still succeed. ε is the upper bound. Begin with
``subject`` (a run rebuilt from its folder) and ``request`` (the audits that can be asked for). A new
membership attack is a function in ``attacks`` (with shadow models: in ``shadow_attacks``) and its name in
``membership``. A new property is a function in ``properties``. The modules ``epsilon_*`` bound ε from below
by planted canaries: ``epsilon_trial`` trains with them, ``epsilon_evaluate`` computes the bounds.
"""
