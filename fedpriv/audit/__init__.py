"""``fedpriv audit``: what an attacker finds out from a run, beside what its ε promises.

An audit is a lower bound: that these attacks fail does not mean that all do. ε is the upper one.

A new membership attack is a function in ``attacks`` (with shadow models: in ``shadow_attacks``) and its name
in ``membership``; a new property is a function in ``properties``.
"""
