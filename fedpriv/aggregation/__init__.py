"""Aggregation: the rule by which the server combines the uploads that it sees, before its optimiser.

    θ ← server optimiser(θ, rule(u_1, …, u_c)),    u_k the upload of client k as it left the client

``aggregation=mean`` is no rule: it is the weighted sum, of which only a sum need be released. A rule receives
each upload by itself, so each honest client's upload is released by itself, with noise from a key of its own.
On released uploads a rule is post-processing, and ε does not change. Where a trusted party, or secure
aggregation, releases only the noised sum, there is no such upload, and a rule is refused.

Begin with :mod:`~fedpriv.aggregation.base`: the interface that a rule of your own extends and offers.
:mod:`~fedpriv.aggregation.checked` checks what a rule returns before the server step takes it.
"""

from fedpriv.aggregation.base import Aggregation, Rule

__all__ = ["Aggregation", "Rule"]
