"""Curvature, read: the spectra that ``isotrope spectrum RUN`` wrote into a run folder."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import read_text
from isotrope.core.errors import InputError
from isotrope.core.result import Result

__all__ = ["HEADINGS", "StoredSpectrum", "cells_of", "densities", "read_spectrum"]

Floats = NDArray[np.float64]

_PLACES = 600  # of a density
_WIDTH = 200  # of its Gaussians: the range of the values by this
HEADINGS = (
    "run",
    "step",
    "largest eigenvalue",
    "smallest",
    "Ritz values below 0",
    "nearly flat",
    "trace",
    "what it says",
)
_METRICS = ("lambda_max", "lambda_min", "negative", "flat", "trace")


@dataclass(frozen=True)
class StoredSpectrum:
    """The spectrum of one run at the last step where it was computed.

    Attributes:
        step: where.
        metrics: its numbers.
        verdict: what kind of point this is, and how the learning rate stands to it.
        probes: Ritz values and weights of each start vector.
    """

    step: int
    metrics: Mapping[str, Any]
    verdict: str
    probes: tuple[tuple[Floats, Floats], ...]


def read_spectrum(folder: Path) -> StoredSpectrum | None:
    """Read ``spectrum/step-N.json`` and ``.csv`` of the greatest N; None if there is none.

    Raises:
        InputError: one of the two is missing or damaged.
    """
    files = sorted((folder / "spectrum").glob("step-*.json"), key=_step)
    if not files:
        return None
    result = Result.load(files[-1])
    table = files[-1].with_suffix(".csv")
    text = read_text(table)
    probes: dict[tuple[str, str], list[tuple[float, float]]] = {}
    try:
        for line in csv.DictReader(io.StringIO(text, newline="")):
            pair = float(line["ritz_value"]), float(line["weight"])
            probes.setdefault((line["seed"], line["probe"]), []).append(pair)
        verdicts = [result.details["verdict"], result.details["learning_rate"]["verdict"]]
        columns = [np.array(pairs).T for pairs in probes.values()]
        return StoredSpectrum(
            int(result.metrics["step"] or 0),
            {name: result.metrics[name] for name in _METRICS},
            "; ".join(map(str, verdicts)),
            tuple((values, weights) for values, weights in columns),
        )
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise InputError(
            f"{table} and the .json beside it are no spectrum ({type(error).__name__}: {error}); "
            f"run `isotrope spectrum {folder}` again"
        ) from error


def _step(path: Path) -> int:
    number = path.stem.removeprefix("step-")
    return int(number) if number.isdigit() else -1


def densities(spectra: Sequence[StoredSpectrum | None]) -> list[tuple[Floats, Floats] | None]:
    """Return the density of each spectrum's eigenvalues, all smoothed alike.

    Returns:
        eigenvalues and densities, the mean over the start vectors; None where there is none.
    """
    every = [
        values for spectrum in spectra if spectrum is not None for values, _ in spectrum.probes
    ]
    if not every:
        return [None] * len(spectra)
    low, high = (float(end) for end in (min(map(np.min, every)), max(map(np.max, every))))
    width = (high - low) / _WIDTH or 1.0
    where = np.linspace(low - 4 * width, high + 4 * width, _PLACES)
    return [
        None if spectrum is None else (where, _density(spectrum, where, width))
        for spectrum in spectra
    ]


def _density(spectrum: StoredSpectrum, where: Floats, width: float) -> Floats:
    """The mean over start vectors of sum_i w_i N(x; theta_i, width)."""
    kernels = [
        np.exp(-0.5 * ((where[:, None] - values) / width) ** 2) @ weights
        for values, weights in spectrum.probes
    ]
    return np.asarray(np.mean(kernels, axis=0) / (width * np.sqrt(2 * np.pi)))


def cells_of(name: str, spectrum: StoredSpectrum) -> list[str | int | float | None]:
    """Return a line of the table of spectra; counts that are means may be no whole numbers."""
    numbers = [spectrum.metrics[key] for key in _METRICS]
    counts = {"negative", "flat"}
    texts = [
        int(value) if key in counts and float(value).is_integer() else value
        for key, value in zip(_METRICS, numbers, strict=True)
    ]
    return [name, spectrum.step, *texts, spectrum.verdict]
