"""The seven losses of table 1, with the hyperparameters of table 2.

Below the paper's scale all losses have the learning rate and the batch size of the scale.
"""

from collections.abc import Mapping
from typing import Any

from isotrope import Preset
from isotrope.paradigm import find
from papers.li2024.losses import BERT
from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import text_jobs

PAPER = "align-uniform"
NAMES = {
    "infonce": "InfoNCE",
    "alignuniform": "align & uniform",
    "dcl": "DCL",
    "dclplus": "DCL+",
    "mpt": "MPT",
    "met": "MET",
    "mat": "MAT",
}
DECOUPLED = ("alignuniform", "dcl")
MARGINS = (0.10, 0.23, 0.80)
"""Of MPT in figure 3: too early a dissipation, the best of table 2, too late a one."""
BACKBONES = {
    BERT: "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "roberta-base": "roberta-base",
    "roberta-large": "roberta-large",
}
_TRANSFER: dict[Scale, tuple[str, ...]] = {
    "smoke": ("CR",),
    "cpu": ("CR", "TREC"),
    "paper": ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"),
}


def tuned(objective: str, backbone: str = BERT) -> Preset:
    """Return a column of table 2 as our objective has it."""
    return find(objective).presets[backbone]


def trained(
    scale: Scale, objective: str, changed: Mapping[str, float | str] | None = None
) -> list[PaperJob]:
    """Return the trainings with one loss on BERT-base or its stand-in; a job for each seed."""
    preset = tuned(objective)
    training: dict[str, Any] = {
        "looks": ["dev", "probes"],
        "scores": ["sts", *_TRANSFER[scale]],
        "mode": "full" if scale == "paper" else "prototyping",
    }
    if scale == "paper":
        training |= {"batch_size": preset.batch_size, "learning_rate": preset.learning_rate}
    return text_jobs(scale, objective, {**preset.values, **(changed or {})}, **training)


def with_margin(scale: Scale, margin: float) -> list[PaperJob]:
    """Return the trainings with MPT at a margin; that of table 2 is table 1's."""
    return trained(scale, "mpt", {"margin": margin})


def end(scale: Scale) -> str:
    """Return of which step scores are: the paper takes the best on the dev set."""
    return "best" if scale == "paper" else "last"


def named(scale: Scale, name: str) -> list[PaperJob]:
    """Return a training of artifacts.toml, which has the name of its objective."""
    return trained(scale, name)
