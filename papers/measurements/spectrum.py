"""A training on images, and the spectrum of its Hessian at some of its steps.

The run is ``isotrope train-images`` with checkpoints that stay (``--keep-every``), each spectrum
taken at one of them: on the batch that came next, of the size of the training, with its crops and
batch statistics, by all parameters of encoder and head, without weight decay. A run that was
stopped goes on from its last checkpoint; its spectra are taken again.

Settings of a job: those of a job of images, and with ``spectrum.`` before them

- ``epochs``: after which a spectrum is taken; by default after the last;
- ``variants``: changes of the question (``[{"batch_norm": "running"}]``), each asked after the
  last epoch as well: how much the numbers depend on it;
- the fields of :class:`Question`.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from isotrope import Views
from isotrope.core import Result, provenance
from isotrope.diagnostics import parameter_hessian
from isotrope.sweeps import trained
from isotrope.training import (
    ImageMethod,
    ImageSettings,
    prepare,
    read_checkpoint,
    step_seed,
)
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.manna2023.spectrum import THRESHOLD, Spectrum, lanczos
from papers.measurements import images

_PREFIX = "spectrum."
_DIGITS = 6  # significant digits of Ritz values that are kept
_ALWAYS = {"probes": 1, "batches": 1, "weight_decay": False, "threshold": THRESHOLD}


@dataclass(frozen=True, kw_only=True)
class Question:
    """How spectra are taken; all of it stands in the result.

    Attributes:
        iterations: how many Lanczos makes.
        seeds: one spectrum each: on another batch (seed s starts s batches after the step), from
            another start vector. How much the numbers differ says how much they are worth.
        batch_size: None for the run's.
        batch_norm: ``batch`` statistics, as in training, or ``running`` ones.
    """

    iterations: int = 100
    seeds: Sequence[int] = (0,)
    batch_size: int | None = None
    batch_norm: Literal["batch", "running"] = "batch"


def check(job: PaperJob, sources: DataRegistry) -> list[str]:
    """Resolve all names of a job; return what is not on this machine, a line each."""
    return images.check(_training_job(job), sources)


def run(job: PaperJob, sources: DataRegistry, folder: Path) -> Result:
    """Train, then run Lanczos at every step that was asked for."""
    question, epochs, variants = _asked(job)
    run_folder = folder / "run"
    settings = images.image_settings(_training_job(job), sources, run_folder)
    settings = settings.model_copy(update={"keep_every": _interval(settings, epochs)})
    outcome = trained(settings)
    per_epoch = outcome.result.details["plan"]["steps_per_epoch"]
    last = int(outcome.result.metrics["steps"] or 0)
    steps = [round(epoch * per_epoch) for epoch in epochs] or [last]
    asked: list[tuple[int, Mapping[str, Any]]] = [(step, {}) for step in steps]
    asked += [(last, changes) for changes in variants]
    measured = []
    for step, changes in asked:
        entry = measure(settings, replace(question, **changes), step)
        measured.append({"epoch": round(step / per_epoch, 4), "variant": changes, **entry})
    end = next(entry["numbers"] for entry in reversed(measured) if not entry["variant"])
    rows = images.rows(run_folder, outcome.result)
    return Result(
        kind="spectrum",
        name=str(job.settings.get("objective", job.settings.get("method", "simclr"))),
        metrics={**end, "knn": rows[-1]["knn"] if rows else None},
        details={"spectra": measured, "looks": rows, "plan": outcome.result.details["plan"]},
        provenance=provenance(seed=job.seed, data=outcome.result.provenance.get("data")),
    )


class Restored(NamedTuple):
    """A method as it was at a step, the terms of the losses to come, and what all this is."""

    method: ImageMethod
    terms: list[Callable[[], list[Views]]]
    about: dict[str, Any]


def restored(settings: ImageSettings, question: Question, step: int) -> Restored:
    """Return a run at a checkpoint: encoder, heads and whatever else its method keeps."""
    computed = {"precision": "32", "devices": 1, "progress": False, "micro_batch": None}
    size = question.batch_size or settings.batch_size
    prepared = prepare(settings.model_copy(update={**computed, "batch_size": size}))
    file = Path(settings.output) / "checkpoints" / f"checkpoint-{step}"
    method, plan = prepared.module, prepared.module.plan
    method.load_state_dict(read_checkpoint(file)["state_dict"])
    method.to("cuda" if torch.cuda.is_available() else "cpu").train()
    norms = [part for part in method.modules() if isinstance(part, _BatchNorm)]
    for part in norms if question.batch_norm == "running" else []:
        part.eval()

    def terms_of(place: int) -> Callable[[], list[Views]]:
        batch = prepared.batches.at(step + place)
        crops = method.crops(batch._replace(images=batch.images.to(method.device)))

        def terms() -> list[Views]:
            method.step = batch.step
            torch.manual_seed(step_seed(method.seed, batch.step))
            return list(method.views(crops))

        return terms

    about = {
        "step": step,
        "head": "as trained",
        "batch_norm": f"{question.batch_norm} statistics" if norms else "none",
        "method": method.name,
        "objective": prepared.objective_name,
        "encoder": method.encoder.name,
        "steps": method.steps,
        "batch_size": prepared.batches.size,
        "optimizer": plan.optimizer,
        "weight_decay": plan.weight_decay,
        "data": prepared.images.fingerprint,
    }
    return Restored(method, [terms_of(place) for place in question.seeds], about)


def measure(settings: ImageSettings, question: Question, step: int) -> dict[str, Any]:
    """Return the spectra of a run at a checkpoint as plain values, with means over their seeds."""
    method, terms, about = restored(settings, question, step)
    numbers, kept = [], []
    for seed, term in zip(question.seeds, terms, strict=True):
        hessian = parameter_hessian(method.objective, [term], method)
        ritz = lanczos(hessian, question.iterations, seed=seed * 1_000_003)
        norm = float(torch.linalg.vector_norm(hessian.gradient, dtype=torch.float64))
        spectrum = Spectrum(hessian.size, hessian.loss, norm, ritz)
        del hessian  # its graph goes before the next one comes
        numbers.append(spectrum.numbers())
        probe = {k: _rounded(getattr(ritz, k)) for k in ("values", "errors", "weights")}
        single = {"size": spectrum.size, "loss": spectrum.loss, "gradient_norm": norm}
        kept.append({"seed": seed, **single, "probes": [probe]})
    means = {name: statistics.fmean(of[name] for of in numbers) for name in numbers[0]}
    rate, peak = method.learning_rate_at(step), method.plan.learning_rate
    return {
        "step": step,
        "numbers": {"step": step, **means},
        "learning_rate": {"at_step": rate, "peak": peak},
        "hessian": {**about, "asked": {**asdict(question), **_ALWAYS}},
        "spectra": kept,
    }


def _training_job(job: PaperJob) -> PaperJob:
    """The job of images with the same training."""
    training_settings = {k: v for k, v in job.settings.items() if not k.startswith(_PREFIX)}
    return PaperJob("images", training_settings, job.seed)


def _asked(job: PaperJob) -> tuple[Question, Sequence[float], Sequence[Mapping[str, Any]]]:
    """What a job asks for beside its training: the question, epochs and variants."""
    options = {
        name.removeprefix(_PREFIX): value
        for name, value in job.settings.items()
        if name.startswith(_PREFIX)
    }
    epochs, variants = options.pop("epochs", ()), options.pop("variants", ())
    return Question(**options), epochs, variants


def _interval(settings: ImageSettings, epochs: Sequence[float]) -> int:
    """Steps between checkpoints so that all that are wanted are among them; the last always is."""
    if not epochs:
        return 10**9
    per_epoch = prepare(settings).batches.steps_per_epoch
    return math.gcd(*(round(epoch * per_epoch) for epoch in epochs)) or 10**9


def _rounded(values: Any) -> list[float]:  # noqa: ANN401 - an array of numbers
    return [float(f"{float(value):.{_DIGITS}g}") for value in values]
