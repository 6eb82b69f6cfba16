"""The spectrum of a run: the curvature of its objective at a step, for each seed.

A seed decides which batches are taken (seed s, of N batches each, starts s N batches after the
step) and the start vectors of Lanczos: how much the numbers differ between seeds says how much they
are worth. Unfinished processes are kept in RUN/spectrum and continue where they stopped.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from isotrope.core.errors import InputError
from isotrope.core.fingerprint import fingerprint
from isotrope.core.result import Result, provenance
from isotrope.diagnostics.curvature import Hessian, parameter_hessian
from papers.manna2023.lanczos import Lanczos
from papers.manna2023.rebuild import Rebuilt, rebuild
from papers.manna2023.spectrum import Spectrum


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
    device: str = "auto"

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("iterations", "probes", "batches"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more; found {getattr(self, name)}")
        known = all(0 <= seed < 2**63 for seed in self.seeds)
        if not self.seeds or not known or len({*self.seeds}) < len(self.seeds):
            raise InputError(
                "seeds must be different whole numbers from 0 to 2^63 - 1; found "
                f"{list(self.seeds)}"
            )
        if not 0 < self.threshold < math.inf:
            raise InputError(f"threshold must be above 0 and finite; found {self.threshold:g}")


@dataclass(frozen=True)
class RunSpectra:
    """The spectra of one run at one step: one for each seed, and all numbers."""

    spectra: tuple[Spectrum, ...]
    result: Result


def measure(run: Path, settings: SpectrumSettings, file: Path) -> RunSpectra:
    """Return the spectra of a run; nothing but unfinished Lanczos processes is written."""
    n = settings.batches
    rebuilt = rebuild(
        run,
        file,
        batches=[seed * n + i for seed in settings.seeds for i in range(n)],
        batch_size=settings.batch_size,
        batch_norm=settings.batch_norm,
        device=settings.device,
    )
    weights = _weights(rebuilt.module)
    spectra = []
    for place, seed in enumerate(settings.seeds):
        hessian = parameter_hessian(
            rebuilt.objective,
            rebuilt.terms[place * n : (place + 1) * n],
            rebuilt.module,
            decay=rebuilt.decay if settings.weight_decay else 0.0,
            keep_graph=settings.keep_graph,
        )
        belongs = fingerprint(weights, _plain(rebuilt.about), _sample(settings), seed)
        spectra.append(_spectrum(hessian, settings, seed, run / "spectrum", belongs))
        del hessian  # its graph goes before the next one comes
    return RunSpectra(tuple(spectra), _result(run, rebuilt, settings, spectra))


def _spectrum(
    hessian: Hessian, settings: SpectrumSettings, seed: int, folder: Path, belongs: str
) -> Spectrum:
    processes = []
    for probe in range(settings.probes):
        process = Lanczos(
            hessian,
            seed=seed * 1_000_003 + probe,
            state=folder / f"lanczos-{belongs}-{probe}-of-{settings.iterations}.npz",
            belongs=belongs,
        )
        process.run(settings.iterations).finish()
        processes.append(process)
    return Spectrum.of(hessian, processes)


def _sample(settings: SpectrumSettings) -> list[Any]:
    """Return the settings that change the numbers of a Lanczos process."""
    return [settings.batches, settings.batch_size, settings.weight_decay, settings.keep_graph]


def _weights(module: nn.Module) -> str:
    return fingerprint(
        {
            name: tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
            for name, tensor in module.state_dict().items()
        }
    )


def _plain(about: dict[str, Any]) -> dict[str, Any]:
    """Leave out settings that may differ in spelling only."""
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
    }
    return Result(
        kind="spectrum",
        name=run.name,
        metrics={"step": rebuilt.step, **metrics},
        details=details,
        provenance=provenance(seed=settings.seeds[0], data=rebuilt.about["data"]),
    )
