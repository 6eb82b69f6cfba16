"""The trainings on small images that ``draganov2024`` and ``manna2023`` share, by name.

At ``cpu`` scale all but the shortest are trained for 8 epochs by their methods' own recipes (Manna
et al.'s), but that the predictors of SimSiam and BYOL learn ten times as fast as their encoders and
that BYOL's projections are normalised and its learning rate is SimSiam's: by the recipes alone
neither learns in so few steps (docs/LOG.md); the gradients of MIO, Barlow Twins and VICReg are
clipped to a norm of 4, or the first of them, 100 to 355 long, throw the embeddings far away. The
sweep over weight decay takes 4 epochs at the learning rate of Draganov et al.'s code for SimCLR in
proportion to the batch, .15, because what decay does grows with it; there SimCLR's first gradients
throw the projections far away with some seeds, so it is swept with clipped gradients, too. Cuts are
tried at learning rates thirty times smaller, again for 4 epochs, and what does not pass raw pixels
in 8 epochs is trained for 16, too. Cuts are also tried with what Draganov et al.'s code has and 8
epochs are too short for: a warm-up of 10 epochs, here of 20.

``paper`` is Manna et al.'s configuration with the difference that the name says, and nothing of
what short trainings need; the tables of Draganov et al. have a configuration of their own there.
``smoke`` has the same differences in two epochs on digits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from isotrope.core import InputError, nearest
from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import image_jobs

_FAST: Mapping[str, Any] = {"method.predictor_rate": 10}
_BYOL: Mapping[str, Any] = {**_FAST, "method.last_norm": "true"}
_BRIEF: dict[str, Mapping[str, Any]] = {
    "simsiam": _FAST,
    "byol": {**_BYOL, "learning_rate": 0.06},
    **{name: {"clip": 4} for name in ("barlowtwins", "vicreg", "miov1", "miov2", "miov3")},
}
"""Settings of short trainings by method or objective, at all scales but ``paper``."""

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
    "DCLW, constant weights": {"objective": "dclw", "objective.weights": "constant"},
}
_CUTS = {"SimCLR": 3, "SimSiam": 9, "BYOL": 9}
_SLOW = {"SimCLR": 0.001, "SimSiam": 0.002, "BYOL": 0.002}
_DECAYS = ("5e-2", "5e-3", "5e-4", "5e-6", "0")
_DECAY_RATE = {"smoke": 0.15, "cpu": 0.15, "paper": 0.3}

_Own = tuple[str, Mapping[str, Any]]
"""A kind of training and its differing settings."""


def _cut() -> dict[str, _Own]:
    return {f"{name}, c = {c}": (name, {"cut": c}) for name, c in _CUTS.items()}


def _slow() -> dict[str, _Own]:
    return {
        f"{name}, learning rate {rate:g}{label}": (name, {"learning_rate": rate, **cut})
        for name, rate in _SLOW.items()
        for label, cut in (("", {}), (f", c = {_CUTS[name]}", {"cut": _CUTS[name]}))
    }


def _decayed() -> dict[str, _Own]:
    trainings: dict[str, _Own] = {
        f"{name}, decay {decay}": (name, {"weight_decay": float(decay)})
        for decay in _DECAYS
        for name in _CUTS
    }
    return trainings | {
        f"{name}, clipped": (kind, {**settings, "clip": 4})
        for name, (kind, settings) in trainings.items()
        if kind == "SimCLR"
    }


def _warm() -> dict[str, _Own]:
    """20 epochs, the first 10 of them warm-up, at the recipes' rates and at a thirtieth."""
    return {
        f"{name}, warm-up{slow}{cut}": (name, {"warmup_epochs": 10, **rate, **constant})
        for name, c in _CUTS.items()
        for slow, rate in (("", {}), (", slow", {"learning_rate": _SLOW[name]}))
        for cut, constant in (("", {}), (f", c = {c}", {"cut": c}))
    }


_LONG: dict[str, _Own] = {**{name: (name, {}) for name in _KINDS}, **_cut()}
_GROUPS: dict[str, dict[str, _Own]] = {
    "slow": _slow(),
    "decayed": _decayed(),
    "warm": _warm(),
    "longer": {f"{name}, 16 epochs": (name, {"epochs": 16}) for name in ("BYOL", "MIOv2")},
}
_PLACES = {**_LONG, **_GROUPS["slow"], **_GROUPS["decayed"], **_GROUPS["longer"], **_GROUPS["warm"]}
_EPOCHS = {
    "slow": {"epochs": 4, "knn_every": 2},
    "decayed": {"epochs": 4, "knn_every": 4},
    "longer": {"knn_every": 4},
    "warm": {"epochs": 20, "knn_every": 4},
}

NAMES = tuple(_PLACES)
"""All of them."""


def small_images(
    scale: Scale, name: str, seeds: Sequence[int] | None = None, **other: Any
) -> list[PaperJob]:
    """Return the training of a name, one job for each seed."""
    if name not in _PLACES:
        raise InputError(f"no training on small images is named {name!r}{nearest(name, _PLACES)}")
    kind, place = _PLACES[name]
    what = dict(_KINDS[kind])
    group = next((group for group, names in _GROUPS.items() if name in names), "")
    brief = _BRIEF.get(what.get("objective", what.get("method", "")), {})
    more: dict[str, Any] = {**({} if scale == "paper" else brief), **place}
    if group == "decayed":
        more["learning_rate"] = _DECAY_RATE[scale]
    if scale == "smoke" and group == "warm":
        more["warmup_epochs"] = 1
    if scale == "cpu":
        more |= _EPOCHS.get(group, {})
    return image_jobs(scale, seeds=seeds, **{**what, **more, **other})
