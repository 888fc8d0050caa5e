"""What an aggregation rule does not go with, and how the rule of a run is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.attacks.names import REPLACEMENT
from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import option_of
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.signatures import refuse_wrong_signatures

if TYPE_CHECKING:
    from fedpriv.aggregation.checked import CheckedRule
    from fedpriv.algorithms.problem import Problem


def refuse_uncombinable(parts: Parts) -> None:
    """A rule combines what the server sees of each client; nobody sees that where a sum alone is released."""
    if parts.aggregation is None:
        return
    algorithm, name = parts.algorithm, option_of("aggregation", parts.aggregation)
    if algorithm.private and not algorithm.trust.sees_each_upload:
        raise ConfigError(
            "aggregation",
            name,
            f"mean with algorithm={algorithm.name} ({algorithm.trust.name} trust)",
            "only the noised sum of the uploads is released there, and what a rule makes of uploads that "
            "nobody noised has no bounded sensitivity",
        )
    of_server = "so that the noise in what it returns is not known"
    if parts.clipper.transforms and not algorithm.row_per_client:
        raise ConfigError(
            "clipper",
            option_of("clipper", parts.clipper),
            f"one that does not scale coordinates with aggregation={name}",
            f"it follows the noise of the mean, and a rule comes before it, {of_server}",
        )
    optimizer = getattr(algorithm, "server", None)
    if getattr(optimizer, "name", None) == "dp_adam_bc" and not algorithm.row_per_client:
        hint = f"it corrects for the noise of the mean, and a rule comes before it, {of_server}"
        others = f"another with aggregation={name}"
        raise ConfigError("algorithm.optimizer", "dp_adam_bc", others, hint)
    boost = getattr(parts.attack, "boost", None)
    if boost == REPLACEMENT and not parts.aggregation.linear:
        hint = "an upload has no weight of its own in what a rule returns"
        raise ConfigError("attack.boost", boost, f"a number with aggregation={name}", hint)


def start_rule(parts: Parts, problem: Problem) -> CheckedRule | None:
    """Start the rule of a run, or return None. Raises ConfigError for one that cannot be used."""
    from fedpriv.aggregation.checked import CheckedRule, refuse_unrepeatable
    from fedpriv.experiment.uncalled import refuse_uncalled

    if parts.aggregation is None:
        return None
    model, clients = problem.model, problem.data.client_count
    rule = CheckedRule(parts.aggregation, model)
    refuse_wrong_signatures("rule", rule.rule)
    refuse_uncalled("rule", rule.rule)
    if is_own(parts.aggregation):
        cohort = parts.algorithm.expected_cohort(clients) or clients
        refuse_unrepeatable(parts.aggregation, model, max(1, round(cohort)))
    return rule
