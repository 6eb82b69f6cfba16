"""The seven losses of table 1, with the hyperparameters of table 2.

Below the paper's scale all losses have the learning rate and the batch size of the scale; what they
share with ``papers.li2024`` is trained once.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from isotrope.paradigm.objective import Preset
from isotrope.paradigm.registry import find
from papers.li2024 import losses as shared
from papers.li2024.losses import BERT, TableLoss
from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import text_jobs

__all__ = [
    "BACKBONES",
    "DECOUPLED",
    "MARGINS",
    "NAMES",
    "PAPER",
    "backbones",
    "end",
    "longer",
    "trained",
    "tuned",
    "untrained",
    "with_margin",
]

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


def backbones(scale: Scale) -> list[str]:
    """Return the columns of tables 1 and 2 that a scale has: below the paper's a stand-in."""
    return list(BACKBONES) if scale == "paper" else [BERT]


def tuned(objective: str, backbone: str = BERT) -> Preset:
    """Return a column of table 2 as our objective has it."""
    return find(objective).presets[backbone]


def trained(
    scale: Scale,
    objective: str,
    backbone: str = BERT,
    changed: Mapping[str, float | str] | None = None,
) -> list[PaperJob]:
    """Return the trainings with one loss, a job for each seed.

    Args:
        scale: of the training.
        objective: its name in the registry.
        backbone: column of table 2.
        changed: hyperparameters other than those of the table.
    """
    preset = tuned(objective, backbone)
    values = {**preset.values, **(changed or {})}
    if backbone == BERT:
        presets = {BERT: dataclasses.replace(preset, values=values)}
        return TableLoss(NAMES[objective], objective, objective, presets).jobs(scale)
    return text_jobs(scale, objective, values, **_own(backbone, preset))


def longer(scale: Scale, objective: str) -> list[PaperJob]:
    """Return trainings that are long enough to overfit, a job for each seed.

    At the paper's scale those of table 1. At ``cpu`` six passes over the sentences instead of one,
    after which all losses still get better; not scored but looked at, on sentences trained on.
    """
    if scale != "cpu":
        return trained(scale, objective)
    settings: dict[str, Any] = {"max_steps": 600, "keep_every": 100}
    settings |= {"looks": ["dev", "probes"], "held_from": "trained"}
    return text_jobs(scale, objective, tuned(objective).values, scored=False, **settings)


def with_margin(scale: Scale, margin: float) -> list[PaperJob]:
    """Return the trainings with MPT at a margin; that of table 2 is table 1's."""
    return trained(scale, "mpt", changed={"margin": margin})


def untrained(scale: Scale, backbone: str = BERT) -> list[PaperJob]:
    """Return the job that scores an encoder before any training (metrics ``... first``)."""
    if backbone == BERT:
        return shared.untrained(scale)
    preset = tuned("infonce", backbone)
    first = {"looks": ["dev"], "ends": ["first"], "max_steps": 1, "keep_every": 1}
    return text_jobs(scale, "infonce", preset.values, seeds=[0], **_own(backbone, preset) | first)


def _own(backbone: str, preset: Preset) -> dict[str, Any]:
    return {
        "encoder": BACKBONES[backbone],
        "learning_rate": preset.learning_rate,
        "batch_size": preset.batch_size,
    }


def end(scale: Scale) -> str:
    """Return of which step scores are: the paper takes the best on the dev set."""
    return "best" if scale == "paper" else "last"
