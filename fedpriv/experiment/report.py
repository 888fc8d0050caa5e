"""The files that a run leaves at its end beside its metrics: ledger, statement, model, summary."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fedpriv.common.files import saying_where, write_json, write_tensors, write_text
from fedpriv.data.base import untested
from fedpriv.experiment.assemble import attackers_of
from fedpriv.experiment.evaluation import accuracy_of_clients
from fedpriv.privacy.core.trade_off import RATES
from fedpriv.store.caveats import RECOUNTED
from fedpriv.store.public import write_public
from fedpriv.store.statement import privacy_words
from fedpriv.store.statement_facts import Circumstances, privacy_facts

if TYPE_CHECKING:
    from fedpriv.experiment.running import Run


def write_report(run: Run, stop_reason: str) -> tuple[dict[str, object], dict[str, object]]:
    """Write plots, ledger, privacy statement, model and summary, and close the tables of the run.

    The ledger is accounted for again, so the stated ε does not rest on the running totals alone. A run with
    ``publish`` gets its folder ``public/`` too.

    Args:
        run: The run that has ended or was interrupted.
        stop_reason: Reason why it ended.

    Returns:
        Summary and privacy facts, as in ``summary.json`` and ``privacy.json``.

    Raises:
        WriteError: A file cannot be written.
    """
    folder, loop = run.folder, run.loop
    settings, algorithm = loop.settings, loop.parts.algorithm
    # The plots read the tables from disk.
    run.close(stop_reason)
    caveats = run.caveats(stop_reason)
    if loop.budget is not None and (differing := loop.budget.recount()):
        caveats.append(RECOUNTED.format(differing=differing))
    circumstances = Circumstances(
        unit=algorithm.unit,
        trust=algorithm.trust,
        caveats=caveats,
        diagnostics=settings.runtime.diagnostics,
        attackers=attackers_of(loop.context).tolist(),
        published=settings.publish,
        paired=settings.paired,
        numbers=loop.context.model.size if algorithm.real_noise else 0,
        before=0 if loop.statistics is None else loop.statistics.numbers,
        imagined=loop.schedule.imagined(loop.rounds_done),
        untested=untested(loop.parts.dataset),
        own_texts=run.own_texts(),
        known=loop.parts.dataset.known,
    )
    privacy = privacy_facts(loop.budget, circumstances, stop_reason)
    # Plots come first, as they take longest. If Ctrl-C ends the report meanwhile, the other files stay whole.
    if settings.runtime.plots and loop.rounds_done:
        from fedpriv.store.run_plots import plot_run

        labels = loop.context.data.labels_per_client if settings.runtime.diagnostics else None
        with saying_where(folder.plots):
            plot_run(folder, privacy, labels)
    if loop.ledger is not None:
        loop.ledger.save(growing=False)
    write_json(folder.privacy_json, privacy)
    write_text(folder.privacy_text, privacy_words(privacy))
    _write_model(run)
    if settings.publish:
        with saying_where(folder.public):
            write_public(
                folder, privacy, settings.publish_test_metrics, settings.publish_validation_metrics
            )
    # The summary comes last: with it the run counts as ended.
    summary = summarise(run, stop_reason, privacy)
    write_json(folder.summary, summary)
    return summary, privacy


def _write_model(run: Run) -> None:
    """Write ``model.pt``: the state dict of the evaluated model, readable with ``weights_only=True``.

    It holds released weights, and beside them buffers that the model held before the first round, or that
    were released then. They are written from the CPU, so that a machine without a GPU can read them.
    """
    with run.loop.evaluated_model():
        state = run.loop.trainer.model_state()
    if run.loop.statistics is not None:
        released = run.loop.statistics.state_dict()
        state |= {"mean": released["mean"], "variance": released["variance"]}
    on_cpu = {
        name: value.cpu() if hasattr(value, "cpu") else value for name, value in state.items()
    }
    write_tensors(run.folder.model, on_cpu)


def summarise(run: Run, stop_reason: str, privacy: dict[str, Any]) -> dict[str, Any]:
    """Return the row of ``summary.json``. Values that a run without diagnostics withholds are None.

    Args:
        run: The run.
        stop_reason: Reason why it ended.
        privacy: The facts of ``privacy.json``.
    """
    loop, results = run.loop, run.metrics.results
    settings, private = loop.settings, loop.budget is not None
    measure = accuracy_of_clients(loop.context.data)
    attack_facts: dict[str, Any] = {}
    if (attack := loop.context.attack) is not None:
        attack_facts = {
            "backdoor_accuracy": results.backdoor_accuracy,
            "highest_backdoor_accuracy": results.highest_backdoor_accuracy,
            "attacked_rounds": results.attacked_rounds,
            "backdoor_test_records": None if attack.test is None else len(attack.test),
            "attackers": attack.attackers.tolist(),
        }
        if attack.test is None:  # no backdoor
            attack_facts = {k: v for k, v in attack_facts.items() if "backdoor" not in k}
        if attack.settings.hidden(loop.parts.algorithm):
            attack_facts["omniscient"] = True
    guessing = math.log(max(2, loop.context.data.classes))
    diverging = results.ran_away and (results.test_loss or 0.0) > guessing
    return {
        "schema_version": 1,
        "algorithm": loop.parts.algorithm.name,
        "dataset": loop.parts.dataset.name,
        "seed": settings.seed if settings.runtime.diagnostics else None,
        **({} if settings.paired is None else {"paired": settings.paired}),
        "rounds": loop.rounds_done,
        **({"aborted_rounds": loop.aborted_rounds} if loop.can_abort else {}),
        "stop_reason": stop_reason,
        **({"diverging": True} if diverging else {}),
        "epsilon": privacy.get("epsilon") if private else None,
        "epsilon_published": privacy.get("epsilon_published") if private else None,
        "epsilon_sound": privacy.get("epsilon_sound") if private else None,
        "delta": settings.delta if private else None,
        **{
            f"largest_tpr_{name}": privacy["largest_tpr"][name] if private else None
            for name in RATES
        },
        "noise_multiplier": loop.last_sigma if private else None,
        "noise_decays": loop.schedule.decays if private else None,
        "test_accuracy": results.test_accuracy,
        "test_loss": results.test_loss,
        "best_test_accuracy": results.best_test_accuracy,
        **({} if results.class_accuracy is None else {"class_accuracy": results.class_accuracy}),
        **(
            {}
            if results.worst_decile is None
            else {f"worst_decile_{measure}": results.worst_decile}
        ),
        **attack_facts,
        "records_not_finite": loop.not_finite if settings.runtime.diagnostics else None,
        "parameters": loop.context.model.size,
        "engine": loop.context.engine.name,
        "test_records": len(loop.context.data.test),
        "seconds": round(loop.seconds, 3) if settings.runtime.diagnostics else None,
        "cpu_seconds": round(loop.cpu_seconds, 3) if settings.runtime.diagnostics else None,
    }
