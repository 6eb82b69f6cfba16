"""Small images: the trainings on images that papers 003 and 004 share, by name.

At ``cpu`` scale all but the shortest are trained for 8 epochs by their methods' own recipes (paper
004's), but that the predictors of SimSiam and BYOL learn ten times as fast as their encoders and
that BYOL's projections are normalised and its learning rate is SimSiam's: by the recipes alone
neither learns in so few steps (docs/LOG.md); the gradients of MIO, Barlow Twins and VICReg are
clipped to a norm of 4, or the first of them, 100 to 355 long, throw the embeddings far away. The
sweep over weight decay takes 4 epochs at the learning rate of paper 003's code for SimCLR in
proportion to the batch, .15, because what decay does grows with it; there SimCLR's first gradients
throw the projections far away with some seeds, so it is swept with clipped gradients, too. Cuts are
tried at learning rates thirty times smaller, again for 4 epochs, and what does not pass raw pixels
in 8 epochs is trained for 16, too.

``paper`` is paper 004's configuration with the difference that the name says, and nothing of what
short trainings need; the tables of paper 003 have a configuration of their own there. ``smoke`` has
the same differences in two epochs on digits.

benchmarks/image_cells.py measured these trainings before there were cells. What it wrote becomes
results of cells by

    python -m isotrope.experiments.reproduce.small_images CSV STORE
"""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from isotrope.core.errors import InputError, nearest
from isotrope.core.result import Result
from isotrope.experiments.reproduce.artifact import Scale
from isotrope.experiments.reproduce.cell import Cell
from isotrope.experiments.reproduce.recipes import image_cells
from isotrope.experiments.reproduce.store import Store

__all__ = ["NAMES", "measured", "small_images", "take_over"]

_FAST: Mapping[str, Any] = {"method.predictor_rate": 10}
_BYOL: Mapping[str, Any] = {**_FAST, "method.last_norm": "true"}
_BRIEF: dict[str, Mapping[str, Any]] = {
    "simsiam": _FAST,
    "byol": {**_BYOL, "learning_rate": 0.06},
    **{name: {"clip": 4} for name in ("barlowtwins", "vicreg", "miov1", "miov2", "miov3")},
}
"""By method or objective: what trainings of few steps need, at all scales but ``paper``."""

_KINDS: dict[str, Mapping[str, Any]] = {
    "SimCLR": {"method": "simclr"},
    "SimSiam": {"method": "simsiam"},
    "BYOL": {"method": "byol"},
    "Barlow Twins": {"method": "barlowtwins"},
    "VICReg": {"method": "vicreg"},
    "MIOv1": {"objective": "miov1"},
    "MIOv2": {"objective": "miov2"},
    "MIOv3": {"objective": "miov3"},
    "DCL": {"objective": "dcl"},
    "DCLW": {"objective": "dclw"},
}
_CUTS = {"SimCLR": 3, "SimSiam": 9, "BYOL": 9}
_SLOW = {"SimCLR": 0.001, "SimSiam": 0.002, "BYOL": 0.002}
_DECAYS = ("5e-2", "5e-3", "5e-4", "5e-6", "0")
_DECAY_RATE = {"smoke": 0.15, "cpu": 0.15, "paper": 0.3}

_Own = tuple[str, Mapping[str, Any]]
"""A kind, and what is different."""


def _cut() -> dict[str, _Own]:
    return {f"{name}, c = {c}": (name, {"cut": c}) for name, c in _CUTS.items()}


def _slow() -> dict[str, _Own]:
    return {
        f"{name}, learning rate {rate:g}{told}": (name, {"learning_rate": rate, **cut})
        for name, rate in _SLOW.items()
        for told, cut in (("", {}), (f", c = {_CUTS[name]}", {"cut": _CUTS[name]}))
    }


def _decayed() -> dict[str, _Own]:
    found: dict[str, _Own] = {
        f"{name}, decay {decay}": (name, {"weight_decay": float(decay)})
        for decay in _DECAYS
        for name in _CUTS
    }
    return found | {
        f"{name}, clipped": (kind, {**own, "clip": 4})
        for name, (kind, own) in found.items()
        if kind == "SimCLR"
    }


_LONG: dict[str, _Own] = {**{name: (name, {}) for name in _KINDS}, **_cut()}
_GROUPS: dict[str, dict[str, _Own]] = {
    "slow": _slow(),
    "decayed": _decayed(),
    "longer": {f"{name}, 16 epochs": (name, {"epochs": 16}) for name in ("BYOL", "MIOv2")},
}
_PLACES = {**_LONG, **_GROUPS["slow"], **_GROUPS["decayed"], **_GROUPS["longer"]}
_EPOCHS = {
    "slow": {"epochs": 4, "knn_every": 2},
    "decayed": {"epochs": 4, "knn_every": 4},
    "longer": {"knn_every": 4},
}

NAMES = tuple(_PLACES)
"""All of them."""


def small_images(
    scale: Scale,
    name: str,
    seeds: Sequence[int] | None = None,
    **other: Any,  # noqa: ANN401 - any setting of a cell of images
) -> list[Cell]:
    """Return the training of a name, one cell for each seed.

    Args:
        scale: of everything that the name does not say.
        name: of :data:`NAMES`: ``"SimCLR"``, ``"SimCLR, c = 3"``,
            ``"SimCLR, learning rate 0.001, c = 3"``, ``"SimCLR, decay 5e-2"``, ...
        seeds: by default those of the scale.
        other: settings of the cell that are different.

    Raises:
        InputError: no such name.
    """
    if name not in _PLACES:
        raise InputError(f"no training on small images is named {name!r}{nearest(name, _PLACES)}")
    kind, own = _PLACES[name]
    what = dict(_KINDS[kind])
    group = next((group for group, names in _GROUPS.items() if name in names), "")
    brief = _BRIEF.get(what.get("objective", what.get("method", "")), {})
    more: dict[str, Any] = {**({} if scale == "paper" else brief), **own}
    if group == "decayed":
        more["learning_rate"] = _DECAY_RATE[scale]
    if scale == "cpu":
        more |= _EPOCHS.get(group, {})
    return image_cells(scale, seeds=seeds, **{**what, **more, **other})


Row = Mapping[str, str]


def measured(file: Path) -> dict[Cell, Result]:
    """Return what benchmarks/image_cells.py wrote, as results of cells.

    Raises:
        InputError: a file that cannot be read, a name that is no training's, rows that are missing.
    """
    try:
        with Path(file).open(newline="", encoding="utf-8") as handle:
            rows = list(csv.DictReader(handle))
        groups = {
            key: list(own) for key, own in groupby(rows, key=lambda row: (row["cell"], row["seed"]))
        }
        found = {}
        for (name, seed), own in groups.items():
            (cell,) = small_images("cpu", name, (int(seed),))
            found[cell] = _result(cell, own)
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not what benchmarks/image_cells.py writes: {error}") from error
    return found


def _result(cell: Cell, rows: Sequence[Row]) -> Result:
    from isotrope.experiments.works.images import MEANS  # imports all that trains

    asked = cell.settings
    per_epoch = asked["limit"] // asked["batch_size"]
    epochs = [int(row["epoch"]) for row in rows]
    if epochs != list(range(0, asked["epochs"] + 1, asked["knn_every"])):
        raise ValueError(f"{cell.shown} has rows of the epochs {epochs}")
    looks = [
        {
            "step": int(row["epoch"]) * per_epoch,
            "epoch": float(row["epoch"]),
            "knn": float(row["knn"]),
            **{name: float(row[name]) for name in MEANS if row.get(name)},
        }
        for row in rows
    ]
    last, end = rows[-1], looks[-1]
    versions = dict(one.split(" ", 1) for one in last["versions"].split(", "))
    seconds = float(last["cpu_seconds"])
    return Result(
        kind="images",
        name=asked["method"],
        metrics={
            **{name: end.get(name) for name in ("knn", "norm", "norm_backbone")},
            "linear": float(last["linear"]),
            "steps": end["step"],
        },
        details={
            "looks": looks,
            "plan": {"steps": end["step"], "steps_per_epoch": per_epoch},
        },
        provenance={
            "versions": versions,
            "machine": "a machine that was not recorded",
            "seed": cell.seed,
            "seconds": seconds,
            "cpu_seconds": seconds,
            "threads": 1,
            "note": "measured by benchmarks/image_cells.py; seconds are processor time",
        },
    )


def take_over(file: Path, store: Store) -> tuple[int, int]:
    """Keep what a file has and the store lacks; return how many results that were, of how many.

    Raises:
        InputError: a file or a store that cannot be used.
    """
    every = measured(file)
    new = {cell: result for cell, result in every.items() if store.find(cell) is None}
    with store.writing():
        for cell, result in new.items():
            store.keep(cell, result)
    return len(new), len(every)


def main(arguments: Sequence[str] | None = None) -> int:
    """Take over a file."""
    parser = argparse.ArgumentParser(
        prog="python -m isotrope.experiments.reproduce.small_images",
        description="Make results of cells from what benchmarks/image_cells.py measured.",
    )
    parser.add_argument("csv", type=Path, metavar="CSV", help="docs/results/image-cells.csv")
    parser.add_argument("store", type=Path, metavar="STORE", help="OUTPUT/cells of reproduce")
    given = parser.parse_args(arguments)
    try:
        new, every = take_over(given.csv, Store(given.store))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{new} of {every} results are new in {given.store}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
