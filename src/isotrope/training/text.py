"""Trains a text encoder: checks the settings, reads the data, trains, and saves the best model.

Nothing is written before the settings, the objective, the dev set and the encoder have been
checked. If reading the data then fails, the run folder is removed.
"""

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from transformers import TrainerCallback

from isotrope.core.distributed import barrier, of_first, process_group, rank, world_size
from isotrope.core.lock import clear, is_effectively_empty
from isotrope.core.run_folder import RunFolder
from isotrope.data.sources import named_errors
from isotrope.data.text.tokens import TokenStore
from isotrope.data.text.views import resolve
from isotrope.encoders.cut_initialize import cut_initialize
from isotrope.encoders.heads import LinearHead, MLPHead
from isotrope.encoders.sentence import DOCUMENTS, SentenceEncoder
from isotrope.encoders.shared_norm import share_statistics
from isotrope.evaluation.dev_score import DevMetric, dev_metric_held_out, dev_metric_of_file
from isotrope.measures.judgement import DevHistory
from isotrope.paradigm import registry
from isotrope.paradigm.declared import objectives_by_dataset
from isotrope.paradigm.objective import Objective
from isotrope.reports.run_summary import line_on_refit, lines_on_changes
from isotrope.training.auto_recipe import with_recipe
from isotrope.training.auto_temperature import with_temperature
from isotrope.training.changes import similarities
from isotrope.training.dev_scorer import DevScorer
from isotrope.training.early_checks import as_begun, check_not_taken, first_record
from isotrope.training.held_out_losses import held_out_curves
from isotrope.training.optimisers import plan_of
from isotrope.training.progress import warn
from isotrope.training.recipe import Plan
from isotrope.training.refit import refitted
from isotrope.training.run import (
    Outcome,
    check_devices,
    end_message,
    run,
    try_objective,
    without_mean,
    write_config,
)
from isotrope.training.settings import TrainSettings
from isotrope.training.text_data import batches_of, check_store, records_of
from isotrope.training.text_encoder import encoder_of, prefixes_of
from isotrope.training.text_module import TextModule, check_loss, check_record, check_scores
from isotrope.training.text_task import TextTask, columns_of
from isotrope.training.time_limit import TimeLimit

_HEADS: dict[str, Callable[[int], nn.Module | None]] = {
    "mlp": MLPHead,
    "linear": LinearHead,
    "none": lambda dimension: None,
}
_NOT_SCORED = "to find out whether training helps, add --dev: no dev score was measured"


def train(
    settings: TrainSettings,
    *,
    resume: bool = False,
    lines: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
) -> Outcome:
    """Train with the given settings and write the run folder; see :mod:`isotrope.training.run`."""
    check_not_taken(Path(settings.output))
    given, settings = settings, as_begun(settings) if resume else settings
    with process_group(check_devices(settings)):  # before the data is read
        settings, limit = of_first(lambda: with_recipe(settings, resume=resume, lines=lines))
        settings.check_used(warn)
        settings = with_temperature(settings, resume=resume)
        work = functools.partial(_train, callbacks=callbacks, limit=limit)
        outcome = run(settings, work, resume=resume, lines=lines)
    again = functools.partial(run, work=_train, resume=True, lines=lines)
    return refitted(as_begun(given), outcome, again)


def summary(outcome: Outcome) -> str:
    """Return the lines that the command line prints at the end of a run."""
    metrics = outcome.result.metrics
    dead = float(metrics["dead"] or 0)
    spent = (
        f"{dead:.0%} of the anchors in the last logged batch had nothing left to learn from this "
        f"objective (gradient dissipation {metrics['dissipation']:.2g})\n"
        if dead >= 0.9 and outcome.result.details["judgement"]["outcome"] != "improved"
        else ""
    )
    own = shlex.quote(str(outcome.output))
    lines = [*lines_on_changes(outcome.result.details, own), line_on_refit(outcome.result.details)]
    notes = "".join(f"{line}\n" for line in lines if line)
    unit, rate = outcome.result.details["data"]["unit"], metrics["samples_per_second"]
    speed = f", {rate or 0:.0f} {unit}/s"
    if time := outcome.result.details.get("time"):
        speed += f"; scores {time['scores']:.0f} s, settings, reading, saving {time['else']:.0f} s"
    return end_message(outcome, notes + spent, speed)


def _train(
    settings: TrainSettings,
    lines: bool,
    callbacks: Sequence[TrainerCallback] = (),
    limit: TimeLimit | None = None,
) -> Outcome:
    if rank() > 0:
        barrier()  # wait until the first process has read the data
    task = _prepare(settings, Path(settings.output), limit)
    if rank() == 0:
        barrier()
    return task.run(lines=lines, callbacks=callbacks)


def check(
    settings: TrainSettings,
) -> tuple[SentenceEncoder, dict[str, Objective], DevMetric | None]:
    """Check everything, write nothing; return encoder, objectives by data set, and dev score."""
    check_loss(settings)
    registry.load_plugins(settings.plugin)
    objectives = objectives_of(settings)
    for objective in objectives.values():
        try_objective(objective, negatives=objective.takes_negatives)
    metric = None
    if settings.dev not in (None, "auto"):
        metric = dev_metric_of_file(Path(str(settings.dev)), settings.dev_metric)
    formed: list[str] = []
    for name in settings.datasets:  # read the first record, so that errors in the files show early
        with named_errors(name):
            first = first_record(settings, records_of(settings, name))
            check_record(settings, first)
            formed.append(resolve(settings.views, first))
    encoder = encoder_of(settings)
    settings.check_used(
        warn,
        single={*formed} == {"dropout"},
        dimension=encoder.dimension,
        pushes=any(objective.pairwise for objective in objectives.values()),
        averaged=not without_mean(settings),
        prompt=encoder.prompt,
        ranked=metric is None or len(metric.queries),
    )
    return encoder, objectives, metric


def objectives_of(settings: TrainSettings) -> dict[str, Objective]:
    """Return a dict from names of data sets to objectives."""
    own = objectives_by_dataset(settings.objective, settings.objective_settings, settings.datasets)
    return {name: registry.build(*described) for name, described in own.items()}


def _prepare(settings: TrainSettings, output: Path, limit: TimeLimit | None) -> TextTask:
    """Check everything and read the data; after a failure, remove what was written."""
    encoder, objectives, metric = check(settings)
    removable = rank() == 0 and is_effectively_empty(output)
    try:
        if rank() == 0:
            write_config(settings)
            if limit is not None:
                limit.write(RunFolder(output).plan)
        batches = batches_of(settings, encoder, RunFolder(output).tokens)
        stores = batches.stores
        metric = _dev_metric(settings, metric, stores)
        for name, store in stores.items():
            with named_errors(name):
                check_store(objectives[name], store)
                check_scores(settings.loss, store)
        plan = plan_of(settings, batches.steps_per_epoch)
    except BaseException:
        if removable:
            clear(output)
        raise
    _save_prompts(encoder, settings)
    module = module_of(settings, encoder, objectives, plan)
    if world_size() > 1:
        share_statistics(module)
    is_compared = settings.encoder != "scratch" and rank() == 0
    return TextTask(
        settings=settings,
        module=module,
        objective_name=settings.loss or settings.objective,
        batch_size=settings.batch_size,
        steps_per_epoch=batches.steps_per_epoch,
        columns=columns_of(stores),
        fingerprint=batches.report.fingerprint,
        clip=settings.clip,
        dev=DevScorer(
            history=DevHistory("dev" if metric is None else metric.name, settings.prefer),
            module=module,
            score=None if metric is None else functools.partial(metric.score, encoder),
            advice=_NOT_SCORED,
            column="dev",
            every=settings.eval_every,
            patience=settings.patience,
            curves=held_out_curves(settings, module, stores),
            data=None if metric is None else metric.fingerprint,
            as_saved=module.blended,
        ),
        twice=settings.refit and not without_mean(settings),
        batches=batches,
        dev_metric=metric,
        similarities_before=similarities(encoder) if is_compared else None,
        limit=limit,
    )


def _save_prompts(encoder: SentenceEncoder, settings: TrainSettings) -> None:
    """Store prompts for queries and passages, if there are any, in the model."""
    if not settings.query_prompt and not settings.passage_prompt:
        return
    others = {k: v for k, v in encoder.model.prompts.items() if k not in DOCUMENTS}
    # encode_query and encode_document of sentence-transformers read them here
    own = {"query": settings.query_prompt, "document": settings.passage_prompt}
    encoder.model.prompts = {**others, **own}
    # the default prompt is empty (see prompts_of), but its name may be query or document
    encoder.model.default_prompt_name = None


def _dev_metric(
    settings: TrainSettings, of_file: DevMetric | None, stores: Mapping[str, TokenStore]
) -> DevMetric | None:
    """Return the dev score, with the number of its records that are in the training data."""
    if settings.dev == "auto":
        prompts = (settings.query_prompt, settings.passage_prompt)
        metric = dev_metric_held_out(stores, prompts=prompts, metric=settings.dev_metric)
        settings.check_used(warn, ranked=len(metric.queries))
    elif of_file is None:
        return None
    else:
        metric = of_file.with_counts(stores)
    # the later records of a stream are not read yet
    return metric if settings.streaming is None else replace(metric, trained_on=None)


def module_of(
    settings: TrainSettings,
    encoder: SentenceEncoder,
    objectives: Mapping[str, Objective],
    plan: Plan,
) -> TextModule:
    """Return the module to train, in its state before the first step."""
    torch.manual_seed(settings.seed)
    module = TextModule(
        settings,
        encoder=encoder,
        head=_HEADS[settings.head](encoder.dimension),
        objectives=objectives,
        plan=plan,
        prefixes=prefixes_of(settings, encoder),
    )
    cut_initialize(module.head, settings.cut, what=settings.cut_what)
    return module
