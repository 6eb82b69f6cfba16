"""A training on text whose data are read: its steps, its printed lines, its result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from isotrope.core.distributed import rank
from isotrope.core.files import write_text
from isotrope.core.lock import ensure_not_replaced
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.core.spelling import named
from isotrope.data.sources import digests
from isotrope.data.text.batches import DatasetMixture
from isotrope.data.text.streamed import StreamedBatches
from isotrope.data.text.tokens import StoreReport, TokenStore
from isotrope.diagnostics.metrics import MEASURED, columns
from isotrope.diagnostics.observe import loss_column
from isotrope.encoders.lora import lora_facts, merged_weights
from isotrope.evaluation.dev_score import DevMetric
from isotrope.evaluation.retrieval import own_prompts
from isotrope.measures.judgement import Judgement
from isotrope.training import changes
from isotrope.training.card import lora_line, text_card
from isotrope.training.loop import Steps, TrainingTask
from isotrope.training.nan_guard import check_finite_weights
from isotrope.training.optimisers import plan_of
from isotrope.training.progress import warn
from isotrope.training.run import hardware
from isotrope.training.settings import TrainSettings
from isotrope.training.text_data import batch_at, seen_in_training
from isotrope.training.text_encoder import dropouts
from isotrope.training.text_module import TextModule
from isotrope.training.time_limit import Pace, TimeLimit

COLUMNS = columns("text")


@dataclass(kw_only=True)
class TextTask(TrainingTask):
    """A training on text whose settings are checked and whose data are read.

    Attributes:
        batches: The records that each step trains on, and the tokenised texts of each data set.
        watch: Object that computes the dev score; None if no dev score is measured.
        general: Result of ``changes.similarities`` before training; None if it is not measured.
        limit: Plan of a run with ``--minutes``; otherwise None.
    """

    kind = "train"
    logged = MEASURED
    rate_column = "samples_per_second"

    settings: TrainSettings
    module: TextModule
    batches: DatasetMixture | StreamedBatches
    watch: DevMetric | None
    general: NDArray[np.float64] | None
    limit: TimeLimit | None = None

    @property
    def most(self) -> int:
        """The largest number of steps to which the run can be corrected."""
        if self.limit is None:
            return self.module.steps
        whole = self.settings.model_copy(update={**self.limit.whole})
        return plan_of(whole, self.batches.steps_per_epoch).steps

    def pace(self) -> Pace | None:
        """Return the object that corrects the number of steps."""
        return None if self.limit is None else Pace(self.limit, self.most, self._replan)

    def _replan(self, steps: int) -> list[str]:
        """Change the number of steps, also in config.yaml, from which a resumed run reads it.

        Returns: The settings that change with it, as they are named in messages.
        """
        assert self.limit is not None
        per_epoch = self.module.plan.steps_per_epoch
        changed = self.limit.changes(steps, self.most, per_epoch)
        before = self.settings
        settings = self.settings = self.settings.model_copy(update=changed)
        self.module.replan(plan_of(settings, per_epoch), settings.log_every)
        if rank() == 0:
            ensure_not_replaced(self.output)
            RunFolder(self.output).write_settings(settings.to_yaml())
        self.dev.history.saved, self.dev.every = settings.prefer, settings.eval_every
        derived = sorted(self.limit.derived)
        return [named(n, new) for n in derived if (new := changed[n]) != getattr(before, n)]

    def loader(self, start: int) -> DataLoader[dict[str, Any]]:
        """Return a loader of the batches from step ``start`` on."""

        def at(step: int) -> dict[str, Any]:
            batch = batch_at(self.settings, self.module.encoder, self.batches, step)
            return self.module.inputs(batch)

        return DataLoader(Steps(at, start, self.most), batch_size=None)

    def introduce(self, say: Callable[[str], None]) -> None:
        """Print a summary of the run: data, steps, dropout, pooling, and warnings."""
        settings, encoder, report = self.settings, self.module.encoder, self.batches.report
        rates = sorted({getattr(module, name) for module, name in dropouts(encoder)})
        dropout = ", ".join(f"{p:g}" for p in rates) or "none"
        pieces = f" (micro-batches of {settings.micro_batch})" if settings.micro_batch else ""
        say(hardware(self.settings))
        if settings.streaming is not None:
            say(f"streaming {settings.streaming:,} records at a time; the first records are:")
        for name, store in self.batches.stores.items():
            own = store.report
            whose = f"{name} ({self.module.objectives[name].name}): " if name else ""
            empty = f", {own.empty_skipped:,} with an empty text left out"
            negatives = f", {own.negatives_dropped:,} negatives dropped, which are held out"
            ranked = own.held_out and settings.groups
            held = " and ranked with all answers of the group as correct" if ranked else ""
            queries = len(self.watch.queries) if self.watch and not name else 0
            if self.watch and self.watch.records and queries not in (0, own.held_out):
                held = f", {queries:,} queries for the score{held}"  # equal texts are one query
            if own.understood:  # a line on skipped data is always printed
                (warn if "; " in own.understood else say)(own.understood)
            say(
                f"{whose}{own.kept:,} {_unit(own)} "
                f"({own.duplicates_dropped:,} duplicates dropped, {own.held_out:,} held out{held}"
                f"{empty if own.empty_skipped else ''}"
                f"{negatives if own.negatives_dropped else ''}), "
                f"{own.truncated_share:.1%} of the texts cut after {own.max_length} tokens"
            )
            if own.groups_dropped:
                group = settings.groups or "label"
                warn(
                    "warning: join groups that share a record, as `isotrope audit --groups` does "
                    f"in grouped.jsonl. {own.groups_dropped:,} records were dropped, because "
                    f"another {group} has the same record. Other records of the same {group} "
                    "as a dropped record now count as negatives of the record that was kept"
                )
        if self.watch is not None and self.watch.trained_on:
            known = all(store.answers() for store in self.batches.stores.values())
            warn(seen_in_training(self.watch, settings, known=known))
        whole = self.twice and self.most == self.module.steps
        twice = ", and about as many for a second training" if whole else ""
        say(
            f"{self.module.steps:,} steps with batches of {settings.batch_size}{pieces}{twice}; "
            f"views: {report.views}; dropout {dropout}; pooling {encoder.pooling}"
        )
        if lora := lora_facts(encoder):
            say(lora_line(lora))
        query, document = own_prompts(encoder)
        if (query or document) and not (settings.query_prompt or settings.passage_prompt):
            warn(
                "warning: set --query-prompt and --passage-prompt: this training uses no prompts, "
                f"but {settings.encoder} expects {query!r} before queries and {document!r} before "
                "documents"
            )
        if "dropout" in report.views and not any(rates):
            warn(
                "warning: add --dropout 0.1: without dropout, the two views of a text are equal, "
                "and the model learns nothing from positives"
            )

    def keep(self, step: int) -> str:
        """Save the model of this step; return the fingerprint of the model."""
        encoder, output = self.module.encoder, self.output
        check_finite_weights(encoder, step)
        ensure_not_replaced(output)
        encoder.save(RunFolder(output).model, card=self._card(step, None))
        with merged_weights(encoder):
            return encoder.fingerprint()

    def finish(self) -> Result:
        """Save the model of the last step if needed, complete the model card, return the result.

        Without a dev score, the model of the last step is the model of the run. If the original
        model has the best score, the last model is saved in the folder ``rejected``. Otherwise, the
        best model is already saved.
        """
        dev, output = self.dev, self.output
        if isinstance(dev.score, str):
            dev.weights[self.module.steps] = self.keep(self.module.steps)
        elif dev.history.chosen_step() == 0:
            encoder = self.module.encoder
            encoder.save(RunFolder(output).rejected, card=self._card(max(dev.scores), None))
        result = self.result()
        if dev.best is not None:  # the judgement is known only after the last step
            judgement = Judgement.read(result.details["judgement"])
            ensure_not_replaced(output)
            card = self._card(dev.best[0], judgement)
            write_text(RunFolder(output).model / "README.md", card)
        return result

    def details(self) -> dict[str, Any]:
        """Return a dict of details that a training on text adds to the result."""
        settings, module, report = self.settings, self.module, self.batches.report
        dev, best = self.dev, self.dev.best
        return {
            "lora": lora_facts(module.encoder),
            "matryoshka": list(module.prefixes),
            "model": {
                "fingerprint": dev.weights.get(best[0] if best else dev.log.timer.steps),
                "start": dev.weights.get(0),
            },
            "kept": changes.kept(self.general, module.encoder, dev.history),
            "queries": changes.changed_queries(self.watch, dev.history),
            "next": changes.next_step(
                report, module.encoder.positions, dev.history, settings, self._longer()
            ),
            "dev": None
            if best is None
            else {"name": dev.history.name, "kind": settings.dev, "data": dev.data},
            "data": {
                "files": list(settings.files),
                "digests": digests(chain.from_iterable(settings.datasets.values())),
                "records": report.kept,
                "unit": _unit(report),
                "duplicates_dropped": report.duplicates_dropped,
                "empty_skipped": report.empty_skipped,
                "truncated_share": report.truncated_share,
                "holdout": report.held_out,
                "holdout_trained_on": None if self.watch is None else self.watch.trained_on,
                "views": report.views,
                **self._datasets(),
            },
        }

    def _longer(self) -> str:
        """Return the advice to train longer, if ``--minutes`` had no time for all steps."""
        timer = self.dev.log.timer
        if self.limit is None or timer.steps < self.module.steps:  # early stopping
            return ""
        return self.limit.advice(timer.steps, self.most, timer.seconds)

    def _datasets(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the records, views and steps of each data set, if there are several."""
        batches = self.batches
        if isinstance(batches, StreamedBatches) or len(batches.stores) == 1:
            return {}
        own = {
            name: {
                "records": store.report.kept,
                "views": store.report.views,
                "steps_per_epoch": batches.parts[name].steps_per_epoch,
            }
            for name, store in batches.stores.items()
        }
        return {"datasets": own}

    @property
    def parameters(self) -> dict[str, object]:
        """A dict of hyperparameters; with several data sets, keys have the form DATASET.NAME."""
        objectives = self.module.objectives
        if self.settings.loss is not None:
            return dict(self.settings.loss_settings)
        return {
            f"{name}.{key}" if name else key: value
            for name, objective in objectives.items()
            for key, value in objective.hyperparameters().items()
        }

    def _card(self, step: int, judgement: Judgement | None) -> str:
        return text_card(
            self.settings, self.module, self.batches.report, self.dev.history, step, judgement
        )


def columns_of(stores: Mapping[str, TokenStore]) -> tuple[str, ...]:
    """Return the columns of metrics.csv, with a loss for each of several data sets."""
    losses = [loss_column(name) for name in stores if name]
    shared = [column for column in COLUMNS if column != TextTask.rate_column]
    return (*shared, *losses, TextTask.rate_column)


def _unit(report: StoreReport) -> str:
    """Return the word for the records: texts or pairs."""
    return "texts" if report.columns == 1 else "pairs"
