"""``public/``: the part of a run with ``publish=true`` that may be given away."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable
from typing import Any

import yaml

from fedpriv.common.files import write_json, write_text
from fedpriv.common.groups import OPTION, TARGET
from fedpriv.store.folder import RunFolder
from fedpriv.store.statement import privacy_words, publishable

_ROOT = """
    epsilon delta rounds budget_view evaluation_interval averaging averaging_decay averaging_start publish
    publish_test_metrics publish_validation_metrics chunk warm_start
"""
_PARTS = "model partition clipper noise_schedule accountant dataset features algorithm aggregation"
_KEYS = """
    activation alpha angles augmentation_multiplicity bands batch_size before beta beta1 beta2 bias bins
    bit_epsilon bit_mechanism bit_noise bits block bucket_size buckets buffers categories cell claim
    classes client client_rate clients clients_per_round clip_norm clip_norms cohort confidence
    conversion cooldown coordinates crop_fill decay_index delta dialects discount discount_at
    discretization draws drop_missing dropout edges embedding epochs eps_error epsilon epsilon_per_draw
    equal feature_skew features filter_order filtered first_kernel form freeze gamma groups hidden
    horizon id initial_accumulator initial_alpha initial_clip_norm initial_weights interval iterations
    label label_skew labels largest_exponent layers learning_rate learning_rate_decay length level
    local_epochs local_learning_rate local_steps long_texts loop loss_bound loss_noise_multiplier
    max_lot_size max_participations min_clip_norm min_noise_multiplier min_records
    min_records_per_client min_separation momentum most_records_per_user name noise noise_multiplier
    noised_by normalization normalize objective only_digits optimizer optimizer_epsilon optimizer_state
    orders orientations padding participation pixels population power proximal public_share
    quantile_learning_rate radius random_crop random_flip ranges reading records records_per_user
    root_records rounds sample_rate sampling scale scales second_moment_floor sensitivity shards
    shards_per_client share shares smallest_exponent smoothing source split statistics
    statistics_clip_norm statistics_noise_multiplier strategy target_quantile tempering test_records
    test_share threshold tolerated tolerated_collusion tolerated_dropouts tree_rounds trigger trust
    update update_interval updates user users validation_records validation_share vocabulary
    vocabulary_size warm_start weight_decay weight_standardization weights_are_public width wrap_limit
"""
"""Keys of fedpriv's own parts that are published. Of a part of the user's own it is the name of its class."""
_MAPPINGS = ("ranges", "categories", "scale")
"""Keys whose values are mappings of the user's own names, and declared public."""
_FACTS = """
    schema_version private finished stop_reason delta budget budget_exceeded budget_view declared_by
    randomness imagined_population noise_adapts accountant order epsilon epsilon_published epsilon_sound
    largest_tpr privacy_profile reasons spread attackers clients views parts before_first_round caveats
    diagnostics
"""
_WITHHELD = "(a text of code outside fedpriv, which is not published)"


def write_public(
    folder: RunFolder, privacy: dict[str, Any], test_metrics: bool, validation_metrics: bool
) -> None:
    """Write ``public/`` anew; a run that may not be published has no such folder.

    The folder holds the model, the privacy statement and the configuration. Of these two only listed keys are
    in it. Whatever was in it before is deleted.

    Args:
        folder: The run folder.
        privacy: The facts of the privacy statement.
        test_metrics: True adds ``metrics.csv`` with its test columns, which read the test records.
        validation_metrics: True adds it with the loss on the validation records. All other columns follow
            from released values.

    Raises:
        WriteError: The model or the metrics cannot be copied, or a text cannot be written.
    """
    # First, so that a run which may no longer be published does not keep what it published before.
    shutil.rmtree(folder.public, ignore_errors=True)
    if publishable(privacy) is not None:
        return
    folder.public.mkdir()
    shutil.copyfile(folder.model, folder.public / folder.model.name)
    facts = {key: privacy[key] for key in _FACTS.split() if key in privacy}
    facts = _without(facts, sorted(privacy.get("own_texts", ()), key=len, reverse=True))
    write_json(folder.public / folder.privacy_json.name, facts)
    statement = privacy_words(facts)
    write_text(
        folder.public / folder.privacy_text.name, statement + "\nThis folder may be published.\n"
    )
    config = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    listed = {
        key: value if key in _ROOT.split() else _public_part(value)
        for key, value in config.items()
        if key in (_ROOT + _PARTS).split()
    }
    write_text(folder.public / folder.config.name, yaml.safe_dump(listed, sort_keys=False))
    if test_metrics or validation_metrics:
        of = {"test": test_metrics, "backdoor": test_metrics, "validation": validation_metrics}
        with open(folder.metrics, encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            header = next(rows)
            kept = [i for i, name in enumerate(header) if of.get(name.partition("_")[0], True)]
            lines = [",".join(row[i] for i in kept) for row in (header, *rows)]
        write_text(folder.public / folder.metrics.name, "\n".join(lines) + "\n")


def _public_part(part: Any) -> Any:
    """Return the listed keys of a part, or of a list of parts."""
    if isinstance(part, list):
        return [_public_part(item) for item in part]
    if not isinstance(part, dict):
        return part
    keys = _KEYS.split() if str(part.get("_target_")).startswith("fedpriv.") else ()
    return {
        key: value if key in _MAPPINGS else _public_part(value)
        for key, value in part.items()
        if key in (TARGET, OPTION) or key in keys
    }


def _without(value: Any, texts: Iterable[str]) -> Any:
    """Return plain values with some texts taken out of all strings."""
    if isinstance(value, str):
        for text in texts:
            value = value.replace(text, _WITHHELD)
        return value
    if isinstance(value, dict):
        return {key: _without(item, texts) for key, item in value.items()}
    return [_without(item, texts) for item in value] if isinstance(value, list) else value
