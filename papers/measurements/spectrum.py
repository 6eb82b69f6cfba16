"""A training on images, and the spectrum of its Hessian at some of its steps.

The run is ``isotrope train-images`` with checkpoints that stay (``--keep-every``), each spectrum
taken at one of them: on the batch that came next, of the size of the training, with its crops and
batch statistics, by all parameters of encoder and head, without weight decay. A run that was
stopped goes on from its last checkpoint; its spectra are taken again.

Settings of a job: those of a job of images, and with ``spectrum.`` before them

- ``epochs``: after which a spectrum is taken; by default after the last;
- ``iterations``: of Lanczos, one product each;
- ``seeds``, ``batch_norm``, ``batch_size``: of :class:`Question`;
- ``variants``: changes of the question (``[{"batch_norm": "running"}]``), each asked after the
  last epoch as well: how much the numbers depend on it.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from isotrope.core.errors import InputError, nearest
from isotrope.core.result import Result, provenance
from isotrope.diagnostics.curvature import parameter_hessian
from isotrope.sweeps.train_one import trained
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import prepare, train
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.manna2023.rebuild import rebuild
from papers.manna2023.spectrum import THRESHOLD, Spectrum, lanczos
from papers.measurements import images

_PREFIX = "spectrum."
_DIGITS = 6  # significant digits of Ritz values that are kept
_NOT_KEPT = ("run", "weights")  # of what a Hessian is of: names of this machine
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
    seeds: tuple[int, ...] = (0,)
    batch_size: int | None = None
    batch_norm: Literal["batch", "running"] = "batch"

    def changed(self, changes: Mapping[str, Any]) -> "Question":
        """Return the question with other values; lists become tuples, as JSON has no tuples.

        Raises:
            InputError: an unknown setting, or no iteration.
        """
        names = [field.name for field in fields(self)]
        for name in changes:
            if name not in names:
                raise InputError(f"unknown setting {_PREFIX}{name}{nearest(name, names)}")
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()
        }
        made = replace(self, **values)
        if made.iterations < 1:
            raise InputError(f"iterations must be 1 or more; found {made.iterations}")
        return made


def check(job: PaperJob, sources: DataRegistry) -> list[str]:
    """Resolve all names of a job; return what is not on this machine, a line each."""
    _asked(job)
    return images.check(_training_job(job), sources)


def run(job: PaperJob, sources: DataRegistry, folder: Path) -> Result:
    """Train, then run Lanczos at every step that was asked for."""
    question, epochs, variants = _asked(job)
    run_folder = folder / "run"
    settings = images.image_settings(_training_job(job), sources, run_folder)
    settings = settings.model_copy(update={"keep_every": _interval(settings, epochs)})
    outcome = trained(train, settings)
    per_epoch = outcome.result.details["plan"]["steps_per_epoch"]
    last = int(outcome.result.metrics["steps"] or 0)
    steps = [round(epoch * per_epoch) for epoch in epochs] or [last]
    if beyond := [step for step in steps if step > last]:
        raise InputError(f"the training of {job.label} has {last} steps; found {beyond[0]}")
    asked: list[tuple[int, Mapping[str, Any]]] = [(step, {}) for step in steps]
    asked += [(last, changes) for changes in variants]
    measured = []
    for step, changes in asked:
        file = run_folder / "checkpoints" / f"checkpoint-{step}"
        entry = measure(run_folder, question.changed(changes), file)
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


def measure(run: Path, question: Question, file: Path) -> dict[str, Any]:
    """Return the spectra of a run at a checkpoint as plain values, with means over their seeds."""
    rebuilt = rebuild(
        run,
        file,
        batches=question.seeds,
        batch_size=question.batch_size,
        batch_norm=question.batch_norm,
    )
    spectra = []
    for place, seed in enumerate(question.seeds):
        hessian = parameter_hessian(
            rebuilt.objective, rebuilt.terms[place : place + 1], rebuilt.module, keep_graph=True
        )
        ritz = lanczos(hessian, question.iterations, seed=seed * 1_000_003)
        norm = float(torch.linalg.vector_norm(hessian.gradient, dtype=torch.float64))
        spectra.append(Spectrum(hessian.size, hessian.loss, norm, ritz))
        del hessian  # its graph goes before the next one comes
    numbers = [spectrum.numbers() for spectrum in spectra]
    means = {name: statistics.fmean(of[name] for of in numbers) for name in numbers[0]}
    kept = [
        {
            "seed": seed,
            "size": spectrum.size,
            "loss": spectrum.loss,
            "gradient_norm": spectrum.gradient_norm,
            "probes": [
                {k: _rounded(getattr(spectrum.ritz, k)) for k in ("values", "errors", "weights")}
            ],
        }
        for seed, spectrum in zip(question.seeds, spectra, strict=True)
    ]
    about = {k: v for k, v in rebuilt.about.items() if k not in _NOT_KEPT}
    return {
        "step": rebuilt.step,
        "numbers": {"step": rebuilt.step, **means},
        "learning_rate": {"at_step": rebuilt.learning_rate, "peak": rebuilt.peak},
        "hessian": {**about, "asked": {**asdict(question), **_ALWAYS}},
        "spectra": kept,
    }


def _training_job(job: PaperJob) -> PaperJob:
    """The job of images with the same training."""
    training_settings = {k: v for k, v in job.settings.items() if not k.startswith(_PREFIX)}
    return PaperJob("images", training_settings, job.seed)


def _asked(job: PaperJob) -> tuple[Question, tuple[float, ...], tuple[Mapping[str, Any], ...]]:
    """What a job asks for beside its training: the question, epochs and variants."""
    options = {
        name.removeprefix(_PREFIX): value
        for name, value in job.settings.items()
        if name.startswith(_PREFIX)
    }
    epochs = tuple(float(epoch) for epoch in options.pop("epochs", ()))
    variants = tuple(options.pop("variants", ()))
    question = Question().changed(options)
    for variant in variants:
        question.changed(variant)
    if any(epoch < 0 for epoch in epochs):
        raise InputError(f"epochs of a spectrum are 0 or more; found {min(epochs):g}")
    return question, epochs, variants


def _interval(settings: ImageSettings, epochs: Sequence[float]) -> int:
    """Steps between checkpoints so that all that are wanted are among them; the last always is."""
    if not epochs:
        return 10**9
    per_epoch = prepare(settings).batches.steps_per_epoch
    return math.gcd(*(round(epoch * per_epoch) for epoch in epochs)) or 10**9


def _rounded(values: Any) -> list[float]:  # noqa: ANN401 - an array of numbers
    return [float(f"{float(value):.{_DIGITS}g}") for value in values]
