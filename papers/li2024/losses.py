"""The losses of the paper's tables: four effective, four ineffective, and the modifications.

The paper's numbers were measured with its released code, which is not what the paper prints, so
the released form is what is trained here (``variant="released"``; table 2 shows both):

- MHE and MHS with nu of 10 and 1, their repulsion of both views;
- Barlow Twins and VICReg never as themselves, but as the loss with the gradient of eq. 10 and 11
  and nu = 30: ``BarlowTwinsGrad`` (with the matrix A in its pull) and ``VICRegGrad``;
- the modified losses with the values of tables 6 and 7, a dissipation that looks at one view, and
  a pull of about twice the ratio that was set.

Numbers of a backbone are the presets of the objectives. InfoNCE and ArcCon have here the values of
SimCSE, whose numbers the paper quotes; ArcCon's own paper is not among ours.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isotrope.paradigm import registry
from isotrope.paradigm.objective import Preset
from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import text_jobs

__all__ = [
    "BACKBONES",
    "BERT",
    "EFFECTIVE",
    "EVERY",
    "MODIFIED",
    "ORIGINAL",
    "ROBERTA",
    "TITLES",
    "TRANSFER",
    "TableLoss",
    "trained_with",
    "trainings",
    "untrained",
]

BERT, ROBERTA = "bert-base", "roberta-base"
BACKBONES = (BERT, ROBERTA)
TITLES = {BERT: "BERT-base", ROBERTA: "RoBERTa-base"}

TRANSFER: dict[Scale, tuple[str, ...]] = {
    "smoke": ("CR",),
    "cpu": ("CR", "TREC"),
    "paper": ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"),
}
"""The transfer tasks that every loss is scored on after training."""

_RELEASED = {"variant": "released"}
_PROBED = ("infonce", "mpt", "met", "mat", "dcl", "dclplus", "alignuniform")
"""Losses of Nie et al. 2023 (``papers.nie2023``), whose tables share these trainings."""
_SENTENCES_PER_CHECKPOINT = 160_000  # sentences between two looks at RoBERTa, whatever the batch


@dataclass(frozen=True)
class TableLoss:
    """A row of tables 3 and 4.

    Attributes:
        name: as the paper calls it.
        row: after the backbone in the rows of its printed numbers.
        objective: in the registry.
        tuned: settings, learning rate and batch size by backbone.
        more: settings besides.
    """

    name: str
    row: str
    objective: str
    tuned: Mapping[str, Preset]
    more: Mapping[str, str] = field(default_factory=dict)

    def jobs(
        self, scale: Scale, backbone: str = BERT, *, step: str | None = None
    ) -> list[PaperJob]:
        """Return its trainings, one for each seed.

        Args:
            scale: below ``paper`` there is one backbone, the stand-in for BERT.
            backbone: of :data:`BACKBONES`.
            step: components exchanged so far, of a modified loss; then only STS is scored.
        """
        if scale != "paper" and backbone != BERT:
            return []
        tuned = self.tuned[backbone]
        settings = {**tuned.values, **self.more}
        training = trained_with(scale, backbone, tuned.batch_size, tuned.learning_rate)
        training["looks"] = ["dev", *(["probes"] if self.objective in _PROBED else [])]
        if step is None:
            return text_jobs(scale, self.objective, settings, **training, **_scores(scale))
        return text_jobs(
            scale, self.objective, {**settings, "step": step}, **training, scores=["sts"]
        )


def trained_with(scale: Scale, backbone: str, size: int, rate: float) -> dict[str, Any]:
    """Return the settings of a training that a loss has for itself, at paper scale."""
    if scale != "paper":
        return {}
    settings: dict[str, Any] = {"batch_size": size, "learning_rate": rate}
    if backbone == BERT:
        return settings
    return {**settings, "encoder": "roberta-base", "keep_every": _SENTENCES_PER_CHECKPOINT // size}


def untrained(scale: Scale, backbone: str = BERT) -> list[PaperJob]:
    """Return the encoder as it is before any training: a job, scored at step 0 (``first``)."""
    if scale != "paper" and backbone != BERT:
        return []
    loss, tuned = EFFECTIVE[0], EFFECTIVE[0].tuned[backbone]
    settings = trained_with(scale, backbone, tuned.batch_size, tuned.learning_rate) | _scores(scale)
    settings |= {
        "seeds": (0,),
        "looks": ["dev"],
        "ends": ["first"],
        "max_steps": 1,
        "keep_every": 1,
    }
    return text_jobs(scale, loss.objective, tuned.values, **settings)


def _scores(scale: Scale) -> dict[str, Any]:
    mode = "full" if scale == "paper" else "prototyping"
    return {"scores": ["sts", *TRANSFER[scale]], "mode": mode}


def _tuned(
    name: str, objective: str, more: Mapping[str, str] | None = None, row: str | None = None
) -> TableLoss:
    """A loss whose class has the values that a paper tuned."""
    return TableLoss(
        name, row or objective, objective, registry.find(objective).presets, more or {}
    )


def _like_simcse(name: str, objective: str, **settings: float) -> TableLoss:
    source = "Gao et al., 2021, its released code"
    values = {"temperature": 0.05, **settings}
    tuned = {BERT: Preset(values, 3e-5, 64, source), ROBERTA: Preset(values, 1e-5, 512, source)}
    return TableLoss(name, objective, objective, tuned)


EFFECTIVE = (
    _like_simcse("InfoNCE", "infonce"),
    _like_simcse("ArcCon", "arccon", margin=math.pi / 18),
    _tuned("MPT", "mpt"),
    _tuned("MET", "met"),
)
ORIGINAL = (
    _tuned("MHE", "mhe"),
    _tuned("MHS", "mhs"),
    _tuned("Barlow Twins", "barlowtwinsgrad", row="barlowtwins"),
    _tuned("VICReg", "vicreggrad", row="vicreg"),
)
MODIFIED = (
    _tuned("mMHE", "modifiedmhe", _RELEASED),
    _tuned("mMHS", "modifiedmhs", _RELEASED),
    _tuned("mB", "modifiedbarlowtwins", _RELEASED),
    _tuned("mV", "modifiedvicreg", _RELEASED),
)
EVERY = (*EFFECTIVE, *ORIGINAL, *MODIFIED)


def trainings(scale: Scale) -> list[PaperJob]:
    """Return the encoders before training and the trainings with every loss: tables 3 and 4."""
    start = [job for base in BACKBONES for job in untrained(scale, base)]
    return start + [c for base in BACKBONES for loss in EVERY for c in loss.jobs(scale, base)]
