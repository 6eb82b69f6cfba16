"""The trainings of the paper's tables and figures by name, at the three scales.

``smoke`` and ``cpu`` take those of ``small_images``, ``paper`` those of recipes.toml.
"""

from fractions import Fraction
from typing import Any

from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import SEEDS, TABLES, image_jobs, small_images

PAPER = "cosine-pitfalls"
CUT = {"SimCLR": 3, "SimSiam": 9, "BYOL": 9}
"""The methods, and the cut-constants of section 4."""
_SLOW = {"SimCLR": "0.001", "SimSiam": "0.002", "BYOL": "0.002"}

_OTHER = {"mocov2": "resnet50", "mocov3": "vit-small", "dino": "vit-small"}
"""Of table 4, with the paper's encoders; of MoCo v3 it says so, of DINO we take the same."""


def named(scale: Scale, name: str) -> list[PaperJob]:
    """Return a training of artifacts.toml, one job for each seed; nothing of what is not run.

    A name is a method, what is different, and the data: ``SimSiam, slow, c = 9``, ``SimCLR,
    decay 0, unclipped``, ``BYOL, heads without batch norm``, ``SimCLR, c = 3 on cifar100``.
    """
    if name.startswith("latent "):
        return latent(scale, name.removeprefix("latent "))
    what, _, data = name.partition(" on ")
    method, *options = what.split(", ")
    own: dict[str, Any] = {"data": data} if data else {}
    given = dict(option.rpartition(" ")[::2] for option in options)
    if "c =" in given and given["c ="] != "1":
        own["cut"] = float(Fraction(given["c ="]))
    if method in _OTHER:
        return _other(scale, method, own)
    if "heads with batch" in given or "heads without batch" in given:
        return _heads(scale, method, norm="heads with batch" in given)
    if part := {"attraction", "repulsion", "both"} & set(options):
        return _part(scale, part.pop())
    decay = given.get("decay", given.get("weight decay"))
    if scale == "paper":
        # table 1 does not say after which epoch: its SimCLR with 5e-6 is table 3's at epoch 100
        own |= {"epochs": 100} if "decay" in given else {}
        return paper(method, **own, **({} if decay is None else {"weight_decay": float(decay)}))
    if "slow" in options:
        return slow(scale, method, own.pop("cut", 1), decay, **own)
    if decay is not None:
        clipped = method == "SimCLR" and "unclipped" not in options
        return small_images(scale, f"{method}, decay {decay}" + ", clipped" * clipped)
    if own.get("cut") == CUT[method]:
        return small_images(scale, f"{method}, c = {CUT[method]}")
    return small_images(scale, method, **own)


def latent(scale: Scale, run: str) -> list[PaperJob]:
    """Return a run of figure 4; at smoke scale there are the two that the paper draws."""
    if scale == "smoke" and run not in ("SimCLR", "BYOL"):
        return []
    settings = {"run": run, **TABLES["latent"][scale]}
    return [PaperJob("latent", settings, seed) for seed in SEEDS[scale]]


def paper(name: str, **other: Any) -> list[PaperJob]:
    """Return the paper's own training of a method, one job for each seed."""
    return image_jobs("paper", **{**TABLES[PAPER]["all"], **TABLES[PAPER][name], **other})


def slow(
    scale: Scale, name: str, c: float = 1, decay: str | None = None, **other: Any
) -> list[PaperJob]:
    """Return 4 epochs at a thirtieth of the usual learning rate (not a training of the paper)."""
    title = f"{name}, learning rate {_SLOW[name]}"
    if decay is not None:
        other["weight_decay"] = float(decay)
    if c == CUT[name]:
        return small_images(scale, f"{title}, c = {CUT[name]}", **other)
    return small_images(scale, title, **(other if c == 1 else {**other, "cut": c}))


def _heads(scale: Scale, name: str, *, norm: bool) -> list[PaperJob]:
    """So short that the learning rate falls at once; with the heads' batch norms or without."""
    settings: dict[str, Any] = {} if norm else {"method.batch_norm": "false"}
    if name == "BYOL" and not norm:
        settings["method.last_norm"] = "false"
    if scale == "paper":
        return paper(name, data="cifar100", epochs=16, warmup_epochs=0, **settings)
    settings |= {"epochs": 1, "knn_every": 1, "knn_images": 500, "linear": False}
    return small_images(scale, name, **settings)


def _part(scale: Scale, part: str) -> list[PaperJob]:
    """SimCLR on a part of its loss: of eq. 1, whose sum is without the positive, DCL."""
    settings: dict[str, Any] = {} if part == "both" else {"objective.part": part}
    if scale == "paper":
        return paper("SimCLR", **settings)
    if settings and scale == "cpu":
        settings |= {"epochs": 2, "knn_every": 1, "knn_images": 500, "linear": False}
    return small_images(scale, "DCL", **settings)


def _other(scale: Scale, name: str, settings: dict[str, Any]) -> list[PaperJob]:
    """The methods of table 4: after the few steps of a CPU they have hardly begun."""
    if scale == "cpu" or (scale, name) == ("smoke", "mocov3"):
        return []
    if scale == "paper":
        settings |= {"data": "imagenet100", "encoder": _OTHER[name]}
        settings |= {"epochs": 100, "knn_every": 10}
    return image_jobs(scale, name, **settings)
