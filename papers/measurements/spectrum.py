"""A training on images, and the spectrum of its Hessian at some of its steps.

The run is ``isotrope train-images`` with checkpoints that stay (``--keep-every``), each spectrum
taken at one of them: by default on the batch that came next, of the size of the
training, with its crops and batch statistics, by all parameters of encoder and head, without weight
decay. A run that was stopped goes on: finished spectra are read, an unfinished one from its last
minute.

Settings of a job: those of a job of images, and with ``spectrum.`` before them those of
``papers.manna2023.run_spectrum.SpectrumSettings`` (``spectrum.iterations``, ...) and

- ``epochs``: after which a spectrum is taken; by default after the last;
- ``variants``: changes of the question (``[{"batch_norm": "running"}]``), each asked after the
  last epoch as well: how much the numbers depend on it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from isotrope.core.errors import InputError, nearest
from isotrope.core.result import Result, provenance
from isotrope.sweeps.train_one import trained
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import prepare, train
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.manna2023.run_spectrum import RunSpectra, SpectrumSettings, measure
from papers.measurements import images

_PREFIX = "spectrum."
_DIGITS = 6  # significant digits of Ritz values that are kept
_NOT_KEPT = ("run", "weights")  # of what a Hessian is of: names of this machine


@dataclass(frozen=True)
class _SpectrumRequest:
    """What a job asks for beside its training."""

    spectrum: SpectrumSettings
    epochs: tuple[float, ...]
    variants: tuple[Mapping[str, Any], ...]


def check(job: PaperJob, sources: DataRegistry) -> list[str]:
    """Resolve all names of a job; return what is not on this machine, a line each."""
    _request(job)
    return images.check(_training_job(job), sources)


def run(job: PaperJob, sources: DataRegistry, folder: Path) -> Result:
    """Train, then run Lanczos at every step that was asked for."""
    request = _request(job)
    run_folder = folder / "run"
    settings = images.image_settings(_training_job(job), sources, run_folder)
    settings = settings.model_copy(
        update={"keep_every": _checkpoint_interval(settings, request.epochs)}
    )
    outcome = trained(train, settings)
    per_epoch = outcome.result.details["plan"]["steps_per_epoch"]
    last = int(outcome.result.metrics["steps"] or 0)
    steps = [round(epoch * per_epoch) for epoch in request.epochs] or [last]
    if beyond := [step for step in steps if step > last]:
        raise InputError(f"the training of {job.label} has {last} steps; found {beyond[0]}")
    questions: list[tuple[int, Mapping[str, Any]]] = [(step, {}) for step in steps]
    questions += [(last, changes) for changes in request.variants]
    measured = []
    for step, changes in questions:
        file = run_folder / "checkpoints" / f"checkpoint-{step}"
        spectrum_ = measure(run_folder, _changed(request.spectrum, changes), file)
        measured.append(
            {"epoch": round(step / per_epoch, 4), "variant": changes, **_as_plain_values(spectrum_)}
        )
    end = next(spectrum_["numbers"] for spectrum_ in reversed(measured) if not spectrum_["variant"])
    rows = images.rows(run_folder, outcome.result)
    return Result(
        kind="spectrum",
        name=str(job.settings.get("objective", job.settings.get("method", "simclr"))),
        metrics={**end, "knn": rows[-1]["knn"] if rows else None},
        details={"spectra": measured, "looks": rows, "plan": outcome.result.details["plan"]},
        provenance=provenance(seed=job.seed, data=outcome.result.provenance.get("data")),
    )


def _training_job(job: PaperJob) -> PaperJob:
    """The job of images with the same training."""
    training_settings = {k: v for k, v in job.settings.items() if not k.startswith(_PREFIX)}
    return PaperJob("images", training_settings, job.seed)


def _request(job: PaperJob) -> _SpectrumRequest:
    options = {
        name[len(_PREFIX) :]: value
        for name, value in job.settings.items()
        if name.startswith(_PREFIX)
    }
    epochs = tuple(float(epoch) for epoch in options.pop("epochs", ()))
    variants = tuple(options.pop("variants", ()))
    spectrum = _changed(SpectrumSettings(), options)
    for variant in variants:
        _changed(spectrum, variant)
    if any(epoch < 0 for epoch in epochs):
        raise InputError(f"epochs of a spectrum are 0 or more; found {min(epochs):g}")
    return _SpectrumRequest(spectrum, epochs, variants)


def _changed(spectrum: SpectrumSettings, changes: Mapping[str, Any]) -> SpectrumSettings:
    """The question with other values; lists become tuples, as plain settings have none."""
    values = {field.name: getattr(spectrum, field.name) for field in fields(SpectrumSettings)}
    for name in changes:
        if name not in values:
            raise InputError(f"unknown setting {_PREFIX}{name}{nearest(name, values)}")
    new_values = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
    return SpectrumSettings(**{**values, **new_values})


def _checkpoint_interval(settings: ImageSettings, epochs: tuple[float, ...]) -> int:
    """Steps between checkpoints so that all that are wanted are among them; the last always is."""
    if not epochs:
        return 10**9
    per_epoch = prepare(settings).batches.steps_per_epoch
    return math.gcd(*(round(epoch * per_epoch) for epoch in epochs)) or 10**9


def _as_plain_values(spectrum: RunSpectra) -> dict[str, Any]:
    """All of a spectrum that is worth keeping, as plain values."""
    details = spectrum.result.details
    hessian = {k: v for k, v in details["hessian"].items() if k not in _NOT_KEPT}
    seeds = hessian["asked"]["seeds"]
    spectra = [
        {
            "seed": seed,
            "size": spectrum_of_seed.size,
            "loss": spectrum_of_seed.loss,
            "gradient_norm": spectrum_of_seed.gradient_norm,
            "probes": [
                {name: _rounded(getattr(ritz, name)) for name in ("values", "errors", "weights")}
                for ritz in spectrum_of_seed.probes
            ],
        }
        for seed, spectrum_of_seed in zip(seeds, spectrum.spectra, strict=True)
    ]
    return {
        "step": spectrum.result.metrics["step"],
        "numbers": spectrum.result.metrics,
        "verdict": details["verdict"],
        "learning_rate": details["learning_rate"],
        "hessian": hessian,
        "spectra": spectra,
    }


def _rounded(values: Any) -> list[float]:  # noqa: ANN401 - an array of numbers
    return [float(f"{float(value):.{_DIGITS}g}") for value in values]
