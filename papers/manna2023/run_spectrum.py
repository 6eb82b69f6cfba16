"""The spectrum of a run: the curvature of its objective at a step, for each seed.

A seed decides which batches are taken (seed s, of N batches each, starts s N batches after the
step) and the start vectors of Lanczos: how much the numbers differ between seeds says how much they
are worth. Unfinished processes lie in RUN/spectrum and go on with the same command.
"""

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from isotrope.core.errors import InputError
from isotrope.core.fingerprint import fingerprint
from isotrope.core.result import Result, provenance
from isotrope.core.views import Views
from isotrope.diagnostics.curvature import (
    Hessian,
    Lanczos,
    Spectrum,
    embedding_hessian,
    parameter_hessian,
)
from papers.manna2023.rebuild import Rebuilt, rebuild

__all__ = ["RunSpectra", "SpectrumSettings", "as_csv", "measure"]

SPREAD = ("lambda_max", "lambda_min", "negative", "flat", "trace", "loss", "gradient_norm")
"""Numbers whose spread over the seeds is reported."""


@dataclass(frozen=True, kw_only=True)
class SpectrumSettings:
    """How the spectra of a run are measured; all of it stands in the result.

    Attributes:
        iterations: how many Lanczos makes, one product each.
        probes: start vectors, for density and trace.
        batches: over which the objective is averaged.
        seeds: one spectrum each.
        batch_size: None for the run's.
        batch_norm: ``batch`` statistics, as in training, or ``running`` ones.
        weight_decay: add the run's to the diagonal.
        keep_graph: whether the gradient's graph is kept: faster, and more memory.
        threshold: Ritz values between 0 and this are counted as nearly flat (Manna et al., 2023,
            take 1).
        optimum: the loss at the optimum, for rates of convergence, or None.
        by: what the loss is a function of: the ``parameters``, or the raw ``embeddings`` that the
            objective sees in one batch, each free.
        device: what to compute on.
    """

    iterations: int = 100
    probes: int = 1
    batches: int = 1
    seeds: tuple[int, ...] = (0,)
    batch_size: int | None = None
    batch_norm: Literal["batch", "running"] = "batch"
    weight_decay: bool = False
    keep_graph: bool = True
    threshold: float = 1.0
    optimum: float | None = None
    by: Literal["parameters", "embeddings"] = "parameters"
    device: str = "auto"

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            InputError: fewer than one of anything, negative or repeated seeds, or a threshold that
                is not above 0.
        """
        for name in ("iterations", "probes", "batches"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} must be 1 or more; found {getattr(self, name)}")
        known = all(0 <= seed < 2**63 for seed in self.seeds)
        if not self.seeds or not known or len({*self.seeds}) < len(self.seeds):
            raise InputError(
                "--seeds must be different whole numbers from 0 to 2^63 - 1; found "
                f"{list(self.seeds)}"
            )
        if self.by == "embeddings" and (self.batches > 1 or self.weight_decay):
            what = "--batches" if self.batches > 1 else "--weight-decay"
            raise InputError(
                f"{what} is of a spectrum by parameters: embeddings belong to one batch, and have "
                "no decay; leave it out, or take --seeds for more batches"
            )
        if not 0 < self.threshold < math.inf:
            raise InputError(f"--threshold must be above 0 and finite; found {self.threshold:g}")
        if self.optimum is not None and not math.isfinite(self.optimum):
            raise InputError(f"--optimum must be a finite number; found {self.optimum:g}")

    @property
    def products(self) -> int:
        """How many products one run takes at most."""
        return len(self.seeds) * self.probes * self.iterations


@dataclass(frozen=True)
class RunSpectra:
    """The spectra of one run at one step.

    Attributes:
        name: the run and the step.
        spectra: one for each seed.
        result: all numbers, with what they are of.
        folder: where its files belong.
    """

    name: str
    spectra: tuple[Spectrum, ...]
    result: Result
    folder: Path


def measure(
    run: Path,
    settings: SpectrumSettings,
    *,
    file: Path | None = None,
    progress: Callable[[int], object] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> RunSpectra:
    """Return the spectra of a run; nothing but unfinished Lanczos processes is written.

    Args:
        run: its folder.
        settings: how.
        file: a checkpoint of it; None takes the newest, or else the saved encoder.
        progress: told how many products are done since the last time.
        tell: takes warnings.

    Raises:
        InputError: no run, data that are missing, or an optimum that is not below the loss.
    """
    n = settings.batches
    rebuilt = rebuild(
        run,
        file=file,
        batches=[seed * n + i for seed in settings.seeds for i in range(n)],
        batch_size=settings.batch_size,
        batch_norm=settings.batch_norm,
        device=settings.device,
        tell=tell,
    )
    folder = run / "spectrum"
    weights = _weights(rebuilt.module)
    spectra = []
    for place, seed in enumerate(settings.seeds):
        hessian = _hessian(rebuilt, settings, rebuilt.terms[place * n : (place + 1) * n])
        belongs = fingerprint(weights, _plain(rebuilt.about), _sample(settings), seed)
        spectra.append(_spectrum(hessian, settings, seed, folder, belongs, progress))
        del hessian  # its graph goes before the next one comes
    return RunSpectra(
        f"{run.name}, step {rebuilt.step:,}",
        tuple(spectra),
        _result(run, rebuilt, settings, spectra),
        folder,
    )


def _hessian(
    rebuilt: Rebuilt, settings: SpectrumSettings, terms: Sequence[Callable[[], list[Views]]]
) -> Hessian:
    if settings.by == "embeddings":
        if "matryoshka" in rebuilt.about:
            raise InputError(
                "--by embeddings needs one loss of each embedding, and a run with --matryoshka has "
                "several; take --by parameters"
            )
        with torch.no_grad():
            views = terms[0]()
        return embedding_hessian(rebuilt.objective, views, keep_graph=settings.keep_graph)
    return parameter_hessian(
        rebuilt.objective,
        terms,
        rebuilt.module,
        decay=rebuilt.decay if settings.weight_decay else 0.0,
        keep_graph=settings.keep_graph,
    )


def _spectrum(
    hessian: Hessian,
    settings: SpectrumSettings,
    seed: int,
    folder: Path,
    belongs: str,
    progress: Callable[[int], object] | None,
) -> Spectrum:
    processes = []
    for probe in range(settings.probes):
        process = Lanczos(
            hessian,
            seed=seed * 1_000_003 + probe,
            gradient=hessian.gradient,
            state=folder / f"lanczos-{belongs}-{probe}-of-{settings.iterations}.npz",
            belongs=belongs,
        )
        process.run(settings.iterations, progress).finish()
        processes.append(process)
    return Spectrum.of(hessian, processes)


def _sample(settings: SpectrumSettings) -> list[Any]:
    """Return the settings that change the numbers of a Lanczos process."""
    return [
        settings.batches,
        settings.batch_size,
        settings.weight_decay,
        settings.keep_graph,
        settings.by,
    ]


def _weights(module: nn.Module) -> str:
    return fingerprint(
        {
            name: tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
            for name, tensor in module.state_dict().items()
        }
    )


def _plain(about: dict[str, Any]) -> dict[str, Any]:
    """Leave out what may be called otherwise and be the same."""
    return {name: value for name, value in about.items() if name not in ("run", "weights")}


def _result(
    run: Path, rebuilt: Rebuilt, settings: SpectrumSettings, spectra: Sequence[Spectrum]
) -> Result:
    rows = [spectrum.numbers(settings.threshold) for spectrum in spectra]
    metrics = {
        name: None if rows[0][name] is None else statistics.fmean(row[name] for row in rows)
        for name in rows[0]
    }
    first = spectra[0]
    details: dict[str, Any] = {
        "hessian": {**rebuilt.about, "asked": asdict(settings)},
        "verdict": first.verdict(),
        "learning_rate": {
            "at_step": rebuilt.learning_rate,
            "peak": rebuilt.peak,
            "verdict": first.step(rebuilt.learning_rate),
            "verdict_of_peak": first.step(rebuilt.peak),
        },
        "seeds": dict(zip(map(str, settings.seeds), rows, strict=True)),
        "spread": {name: _spread([row[name] for row in rows]) for name in SPREAD},
    }
    if settings.optimum is not None:
        directions = first.descent(settings.optimum)
        details["descent"] = {
            "optimum": settings.optimum,
            "proxy": first.proxy(settings.optimum),
            "positive": [asdict(d) for d in directions if d.rate is not None],
            "escape": [asdict(d) for d in directions if d.rate is None],
        }
    return Result(
        kind="spectrum",
        name=run.name,
        metrics={"step": rebuilt.step, **metrics},
        details=details,
        provenance=provenance(seed=settings.seeds[0], data=rebuilt.about["data"]),
    )


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, extremes and standard deviation over the seeds."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    mean = statistics.fmean(values)
    return {"mean": mean, "min": min(values), "max": max(values), "std": deviation}


def as_csv(measured: RunSpectra, seeds: Sequence[int]) -> str:
    """Return one line for each Ritz value: seed, probe, value, error bound, weight, slope."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["seed", "probe", "ritz_value", "error", "weight", "slope"])
    for seed, spectrum in zip(seeds, measured.spectra, strict=True):
        for probe, ritz in enumerate(spectrum.probes):
            columns = (ritz.values, ritz.errors, ritz.weights, ritz.slopes)
            for row in zip(*columns, strict=True):
                lines.writerow([seed, probe, *(f"{float(number):.9g}" for number in row)])
    return text.getvalue()
