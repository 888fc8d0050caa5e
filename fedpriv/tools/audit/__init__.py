"""``fedpriv audit``: what an attacker finds out from a run, beside what its ε promises.

An audit is a lower bound: that these attacks fail does not mean that all do. ε is the upper one. Begin with
``subject`` (a run rebuilt from its folder) and ``request`` (what may be asked). A new membership attack is a
function in ``attacks`` (with shadow models: in ``shadow_attacks``) and its name in ``membership``; a new
property is a function in ``properties``. The modules ``epsilon_*`` bound ε from below by planted canaries:
``epsilon_trial`` trains with them, ``epsilon_evaluate`` bounds.
"""
