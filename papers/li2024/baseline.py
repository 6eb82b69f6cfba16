"""The paper's empirical baseline (eq. 5: m 0.3, tau 0.05, r 1), and one hyperparameter varied.

As its other losses, it is trained in the form of the released code, with which the paper's curves
were measured: both directions are summed with live positives, so that r pulls about twice.
"""

from collections.abc import Mapping
from typing import Any

from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import text_jobs

__all__ = ["BASELINE", "VALUES", "baseline", "notes", "undissipated", "varied"]

BASELINE = {"margin": 0.3, "temperature": 0.05, "ratio": 1.0}

VALUES: dict[Scale, dict[str, tuple[float, ...]]] = {
    "smoke": {"margin": (0.3, 1.0), "temperature": (0.05, 0.3), "ratio": (1.0, 2.0)},
    "cpu": {
        "margin": (0.3, 0.5, 0.7, 1.0),
        "temperature": (0.01, 0.05, 0.1, 0.3, 1.0),
        "ratio": (0.25, 0.5, 1.0, 2.0),
    },
    "paper": {
        "margin": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "temperature": (0.01, 0.03, 0.05, 0.1, 0.3, 1.0, 3.0),
        "ratio": (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0),
    },
}
"""The varied values: the ends of the ranges are the paper's, the values between are ours."""

_SHORT: dict[Scale, Mapping[str, Any]] = {
    "smoke": {},
    "cpu": {"max_steps": 60, "keep_every": 30, "looks": ["dev", "closeness"]},
    "paper": {},
}
_HELD: dict[Scale, Mapping[str, Any]] = {
    "smoke": {},
    "cpu": {},
    "paper": {"texts": "wiki1m_for_simcse.txt:900000"},  # 90%, what follows is looked at
}


def baseline(scale: Scale) -> list[PaperJob]:
    """Return its trainings, one for each seed, measured on held-out text."""
    return _cells(scale, BASELINE, **_HELD[scale])


def undissipated(scale: Scale) -> list[PaperJob]:
    """Return the same with GD = 1."""
    return _cells(scale, BASELINE, dissipation="none", **_HELD[scale])


def varied(scale: Scale, name: str, value: float, *, held: bool = False) -> list[PaperJob]:
    """Return trainings with one value changed; at ``cpu`` scale they are short.

    Args:
        scale: of the training.
        name: what is changed: ``margin``, ``temperature`` or ``ratio``.
        value: to what; the baseline's own is among them.
        held: whether text must be held out to look at, where not all of the data are trained on
            anyway.
    """
    more = _HELD[scale] if held else {}
    return _cells(scale, {**BASELINE, name: value}, **_SHORT[scale], **more)


def notes(scale: Scale, *, short: bool = False, held: bool = True) -> list[str]:
    """Return the notes of these trainings for a reader.

    Args:
        scale: of them.
        short: whether the trainings are those with one value changed.
        held: whether held-out text was looked at.
    """
    lines = []
    if scale == "cpu":
        settings = (varied(scale, "ratio", 1.0) if short else baseline(scale))[0].settings
        lines.append(
            "smaller than the paper's: a sentence encoder disturbed by filling in words (not a raw "
            "one) instead "
            f"of BERT-base, {settings['max_steps']} steps of {settings['batch_size']} short "
            f"sentences at {settings['learning_rate']:g} instead of one pass over a million in "
            "batches of 128 at 1e-5, and no head"
        )
    lines.append(
        "the form of the released code, with which the paper's curves were measured: both "
        "directions summed with live positives, so that r pulls about twice"
    )
    if held:
        lines.append("looked at on text that was not trained on, two masks of dropout as views")
    return lines


def _cells(
    scale: Scale,
    values: Mapping[str, float],
    *,
    dissipation: str | None = None,
    **more: Any,
) -> list[PaperJob]:
    settings: dict[str, float | str] = {
        "dissipation": dissipation or f"margin:{values['margin']:g}",
        "weight": f"softmax:{values['temperature']:g}",
        "ratio": values["ratio"],
        "variant": "released",
    }
    return text_jobs(scale, "paradigm", settings, scored=False, **more)
