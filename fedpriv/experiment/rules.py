"""The start of a run's aggregation rule, once the number of clients and the model are known."""

from __future__ import annotations

from fedpriv.aggregation.checked import CheckedRule, refuse_unrepeatable
from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.attributes import is_own
from fedpriv.experiment.instantiate import within_group
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.signatures import refuse_wrong_signatures
from fedpriv.experiment.uncalled import refuse_uncalled


def start_rule(parts: Parts, context: RunContext) -> CheckedRule | None:
    """Return the started aggregation rule of a run, or None.

    Args:
        parts: The objects of all groups.
        context: What the run works on, with data and model.

    Raises:
        ConfigError: The rule does not go with the number of clients, has methods that nothing calls, or gives
            other results for the same uploads.
    """
    settings, algorithm = parts.aggregation, parts.algorithm
    if settings is None:
        return None
    model, clients = context.model, context.data.client_count
    most = algorithm.clients_per_round or clients
    within_group("aggregation", lambda: settings.check_cohort(most))
    rule = CheckedRule(settings, model)
    refuse_wrong_signatures("rule", rule.rule)
    refuse_uncalled("rule", rule.rule)
    if is_own(settings) and not settings.reads_validation:
        expected = algorithm.expected_cohort(clients) or clients
        refuse_unrepeatable(settings, model, max(1, round(expected)))
    return rule
