"""The trainings that several tables and figures of the paper share, at the three scales.

``smoke`` and ``cpu`` take those of ``small_images``. ``paper`` is what the paper and its released
code say: ResNet-50, crops of the code, pixels in [0, 1], 500 epochs with 10 of warm-up. Where they
differ or are silent: batches of 128 (the paper's footnote; the code has 256 for SimCLR and
accumulates 1,024 for the others) with learning rates in proportion, plain momentum (the code has
Nesterov's for SimSiam and BYOL), and the code's peak learning rate is the square of what it is told
by a slip, which is not followed.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import image_jobs
from papers.machinery.small_images import small_images

CUT = {"SimCLR": 3, "SimSiam": 9, "BYOL": 9}
"""The methods, and the cut-constants of section 4."""
ROW = {"SimCLR": "simclr", "SimSiam": "simsiam", "BYOL": "byol"}
"""Their names in ``paper_numbers.toml``."""
DECAYS: dict[Scale, tuple[str, ...]] = {
    "smoke": ("5e-2", "0"),
    "cpu": ("5e-2", "5e-3", "5e-4", "5e-6", "0"),
    "paper": ("5e-2", "5e-3", "5e-4", "5e-6", "0"),
}
"""Of table 1, the largest first."""
EPOCHS: dict[Scale, tuple[int, ...]] = {"smoke": (1, 2), "cpu": (2, 4, 6, 8), "paper": (100, 500)}
"""After which kNN accuracies of a full training are compared."""
_SLOW = {"SimCLR": "0.001", "SimSiam": "0.002", "BYOL": "0.002"}

_PAPER: Mapping[str, Any] = {
    "encoder": "resnet50",
    "augment": "p3",
    "pixels": "none",
    "batch_size": 128,
    "epochs": 500,
    "warmup_epochs": 10,
    "knn_every": 4,  # epochs 1, 16, 100, 300 and 500 are all among its looks
}
_OWN: dict[str, Mapping[str, Any]] = {
    "SimCLR": {
        "method": "simclr",
        "objective": "dcl",  # eq. 1 has the positive outside of the sum, as the code
        "objective.temperature": 0.5,
        "learning_rate": 0.3,
        "weight_decay": 1e-6,
    },
    "SimSiam": {
        "method": "simsiam",
        "method.layers": 3,
        "method.constant": "true",
        "learning_rate": 0.025,
        "weight_decay": 5e-4,
    },
    "BYOL": {
        "method": "byol",
        "method.hidden": 2048,
        "method.dimension": 2048,
        "method.last_norm": "true",
        "learning_rate": 0.025,
        "weight_decay": 5e-4,
    },
}


def paper(name: str, **other: Any) -> list[PaperJob]:
    """Return the paper's own training of a method, one job for each seed."""
    settings = {**_PAPER, **_OWN[name], **other}
    if settings.get("cut") == 1:
        del settings["cut"]  # or the same training would be another job
    return image_jobs("paper", **settings)


def default(scale: Scale, name: str, **other: Any) -> list[PaperJob]:
    """Return a method as it is; ``other`` as in :func:`paper`."""
    return paper(name, **other) if scale == "paper" else small_images(scale, name, **other)


def cut(scale: Scale, name: str, **other: Any) -> list[PaperJob]:
    """Return a method with the cut-constant of section 4; ``other`` as in :func:`paper`."""
    if scale == "paper":
        return paper(name, cut=CUT[name], **other)
    return small_images(scale, f"{name}, c = {CUT[name]}", **other)


def decayed(scale: Scale, name: str, decay: str) -> list[PaperJob]:
    """Return a method with a weight decay of table 1, which does not say after which epoch.

    At ``paper`` scale we take 100: its SimCLR with 5e-6 is that of table 3 at epoch 100. Below it
    SimCLR's gradients are clipped, or the first throw its embeddings far away with some seeds.
    """
    if scale == "paper":
        return paper(name, epochs=100, weight_decay=float(decay))
    return small_images(scale, f"{name}, decay {decay}" + ", clipped" * (name == "SimCLR"))


def slow(scale: Scale, name: str, c: float = 1, **other: Any) -> list[PaperJob]:
    """Return 4 epochs at a thirtieth of the recipe's learning rate (not a training of the paper).

    A cut multiplies what a step of the same length does, as a larger learning rate does: at the
    recipes' own there is nothing to gain by it.
    """
    title = f"{name}, learning rate {_SLOW[name]}"
    if c == CUT[name]:
        return small_images(scale, f"{title}, c = {c}", **other)
    return small_images(scale, title, **(other if c == 1 else {**other, "cut": c}))


def cut_name(c: float) -> str:
    """Return ``1/3`` or ``9``."""
    return str(Fraction(c).limit_denominator(16))
