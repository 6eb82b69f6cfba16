"""A training on text whose data are read: its steps, its printed lines, its result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from isotrope.training.text_data import batch_at
from isotrope.training.text_encoder import dropouts
from isotrope.training.text_module import TextModule
from isotrope.training.time_limit import Pace, TimeLimit
from isotrope.training.trainers import TextTrainer


@dataclass(kw_only=True)
class TextTask(TrainingTask):
    """A training on text whose settings are checked and whose data are read.

    Attributes:
        batches: The records that each step trains on, and the tokenised texts of each data set.
        dev_metric: Object that computes the dev score; None if no dev score is measured.
        similarities_before: Cosines of general sentences before training; None if not measured.
        limit: Plan of a run with ``--minutes``; otherwise None.
    """

    kind = "train"
    logged = MEASURED
    rate_column = "samples_per_second"
    trainer_class = TextTrainer

    settings: TrainSettings
    module: TextModule
    batches: DatasetMixture | StreamedBatches
    dev_metric: DevMetric | None
    similarities_before: NDArray[np.float64] | None
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
        if (settings.prefer, before.prefer) == ("best", "trained"):  # it is not turned back
            self.limit.derived -= {"prefer"}
        self.module.replan(plan_of(settings, per_epoch), settings.log_every)
        if rank() == 0:
            ensure_not_replaced(self.output)
            RunFolder(self.output).write_settings(settings.to_yaml())
            self.limit.write(RunFolder(self.output).plan)
        self.dev.replan(settings.eval_every, settings.prefer)
        return [named(n, new) for n, new in changed.items() if new != getattr(before, n)]

    def loader(self, start: int) -> DataLoader[dict[str, Any]]:
        """Return a loader of the batches from step ``start`` on."""

        def at(step: int) -> dict[str, Any]:
            batch = batch_at(self.settings, self.module.encoder, self.batches, step)
            return self.module.inputs(batch)

        return DataLoader(Steps(at, start, self.most), batch_size=None)

    def introduce(self, say: Callable[[str], None]) -> None:
        """Print a summary of the run: hardware, data, steps, and warnings."""
        settings, stores = self.settings, self.batches.stores
        say(hardware(settings))
        if settings.streaming is not None:
            say(f"streaming {settings.streaming:,} records at a time; the first records are:")
        for name, store in stores.items():
            self._introduce_data(name, store.report, say)
        if self.dev_metric is not None and self.dev_metric.trained_on:
            warn(self._line_on_trained_texts(self.dev_metric))
        rates = sorted({getattr(module, name) for module, name in dropouts(self.module.encoder)})
        say(self._line_on_steps(rates))
        if lora := lora_facts(self.module.encoder):
            say(lora_line(lora))
        for warning in self._warnings(rates):
            warn(warning)

    def _line_on_trained_texts(self, metric: DevMetric) -> str:
        """Return the warning that some scored texts are in the training data."""
        counts = f"{metric.trained_on:,} of {metric.records:,}"
        if self.settings.dev != "auto":
            texts, surely = ("queries", "is") if metric.queries else ("first sentences", "can be")
            return (
                f"warning: remove the {texts} of {self.settings.dev} from the training data, which "
                f"contain {counts} (case and most punctuation ignored), so the dev score {surely} "
                "too high"
            )
        if all(store.answers() for store in self.batches.stores.values()):
            return (
                "each answer belongs to several questions, so only questions are held out. For the "
                "dev score, all answers are ranked, including answers in the training data"
            )
        return (
            "the dev score can be higher than that of new texts: training records share a text, "
            f"such as the answer, with {counts} held-out records"
        )

    def _introduce_data(self, name: str, report: StoreReport, say: Callable[[str], None]) -> None:
        """Print how many records of a data set are trained on, left out and cut."""
        if report.understood:  # a line on skipped data is always printed
            (warn if report.partly_read else say)(report.understood)
        objective = f"{name} ({self.module.objectives[name].name}): " if name else ""
        duplicates = f"{report.duplicates_dropped:,} duplicates dropped"
        left_out = [duplicates, self._held_out(name, report)]
        if report.empty_skipped:
            left_out.append(f"{report.empty_skipped:,} with an empty text left out")
        if report.negatives_dropped:
            removed = "hard negatives removed because a held-out pair has the text"
            left_out.append(f"{report.negatives_dropped:,} {removed}")
        own = self.module.encoder
        elsewhere = f"; for scores and in the saved model, {own.limit_clause}"
        grouped = (
            ". All answers of a query's group count as correct, so the score cannot be compared "
            "with that of a run without --groups"
        )
        all_texts = "the texts of all columns together" if report.columns > 1 else "the texts"
        say(
            f"{objective}{report.kept:,} {_unit(report)} ({', '.join(left_out)}), "
            f"{report.truncated_share:.1%} of {all_texts} cut after {report.max_length} tokens"
            f"{elsewhere * (report.max_length < own.max_length)}"
            f"{grouped if self.settings.groups and self.settings.dev == 'auto' else ''}"
        )
        if report.groups_dropped:
            group = self.settings.groups or "label"
            warn(
                "warning: join groups that share a record, as `isotrope audit --groups` does in "
                f"grouped.jsonl. Dropped records: {report.groups_dropped:,}, because another "
                f"{group} has the same record. Other records of the same {group} as a dropped "
                "record now count as negatives of the record that was kept"
            )

    def _held_out(self, name: str, report: StoreReport) -> str:
        """Return how many records of a data set are held out, and how they are scored."""
        line = f"{report.held_out:,} held out"
        if self.dev_metric is not None and self.dev_metric.records and not name:
            queries = len(self.dev_metric.queries)
            if queries not in (0, report.held_out):  # equal texts are one query
                line += f", {queries:,} queries for the score"
        return line

    def _line_on_steps(self, dropout_rates: Sequence[float]) -> str:
        """Return the line on the steps, the views and the encoder."""
        settings, steps = self.settings, self.module.steps
        pieces = f" (micro-batches of {settings.micro_batch})" if settings.micro_batch else ""
        is_whole = self.twice and self.most == steps
        second = ", and about as many for a second training" if is_whole else ""
        dropout = ", ".join(f"{rate:g}" for rate in dropout_rates) or "none"
        return (
            f"{steps:,} steps with batches of {settings.batch_size}{pieces}{second}; views: "
            f"{self.batches.report.views}; dropout {dropout}; pooling "
            f"{self.module.encoder.pooling}"
        )

    def _warnings(self, dropout_rates: Sequence[float]) -> Iterator[str]:
        """Yield warnings: prompts that are not used, and equal views."""
        settings = self.settings
        query, document = own_prompts(self.module.encoder)
        if (query or document) and not (settings.query_prompt or settings.passage_prompt):
            yield (
                "warning: set --query-prompt and --passage-prompt: this training uses no prompts, "
                f"but {settings.encoder} expects {query!r} before queries and {document!r} before "
                "documents"
            )
        if "dropout" in self.batches.report.views and not any(dropout_rates):
            yield (
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
        dev, folder, best_step = self.dev, RunFolder(self.output), self.dev.best_step
        if best_step is None:
            dev.save(self.module.steps)
        elif best_step == 0:
            self.module.encoder.save(folder.rejected, card=self._card(max(dev.scores), None))
        result = self.result()
        if best_step is not None:  # the judgement is known only after the last step
            judgement = Judgement.read(result.details["judgement"])
            ensure_not_replaced(self.output)
            write_text(folder.model / "README.md", self._card(best_step, judgement))
        return result

    def details(self) -> dict[str, Any]:
        """Return a dict of details that a training on text adds to the result."""
        settings, module, report = self.settings, self.module, self.batches.report
        dev, best_step = self.dev, self.dev.best_step
        saved = dev.log.timer.steps if best_step is None else best_step
        time, longer = self._time(), ""
        dev_data = {"name": dev.history.name, "kind": settings.dev, "data": dev.data}
        if self.limit is not None and time and time["enough"]:
            longer = self.limit.advice(dev.log.timer.steps, self.most, time["enough"])
        return {
            "lora": lora_facts(module.encoder),
            "matryoshka": list(module.prefixes),
            "model": {"fingerprint": dev.weights.get(saved), "start": dev.weights.get(0)},
            "kept": changes.kept(self.similarities_before, module.encoder, dev.history),
            "queries": changes.changed_queries(self.dev_metric, dev.history),
            "next": changes.next_step(report, module.encoder, dev.history, settings, longer),
            "time": time,
            "dev": None if best_step is None else dev_data,
            "data": {
                "files": list(settings.files),
                "digests": digests(chain.from_iterable(settings.datasets.values())),
                "records": report.kept,
                "unit": _unit(report),
                "duplicates_dropped": report.duplicates_dropped,
                "empty_skipped": report.empty_skipped,
                "truncated_share": report.truncated_share,
                "holdout": report.held_out,
                "holdout_trained_on": self.dev_metric and self.dev_metric.trained_on,
                "views": report.views,
                **self._datasets(),
            },
        }

    def _time(self) -> dict[str, Any] | None:
        """Return how long a run with ``--minutes`` took; None for other runs."""
        limit, timer = self.limit, self.dev.log.timer
        # a run that ended early does not lack time, so its last step counts as the largest possible
        most = timer.steps if timer.steps < self.module.steps else self.most
        return limit.spent(timer.steps, most, timer.seconds, timer.rested) if limit else None

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
        if self.settings.loss is not None:
            return dict(self.settings.loss_settings)
        return {
            f"{name}.{key}" if name else key: value
            for name, objective in self.module.objectives.items()
            for key, value in objective.hyperparameters().items()
        }

    def _card(self, step: int, judgement: Judgement | None) -> str:
        return text_card(
            self.settings, self.module, self.batches.report, self.dev.history, step, judgement
        )


def columns_of(stores: Mapping[str, TokenStore]) -> tuple[str, ...]:
    """Return the columns of metrics.csv, with a loss for each of several data sets."""
    shared = [column for column in columns("text") if column != TextTask.rate_column]
    return (*shared, *(loss_column(name) for name in stores if name), TextTask.rate_column)


def _unit(report: StoreReport) -> str:
    """Return the word for the records: texts or pairs."""
    return "texts" if report.columns == 1 else "pairs"
