"""The paper's empirical baseline (eq. 5: m 0.3, tau 0.05, r 1), with and without dissipation.

As its other losses, it is trained in the form of the released code, with which the paper's curves
were measured: both directions are summed with live positives, so that r pulls about twice.
"""

from collections.abc import Mapping
from typing import Any

from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import smaller_text, text_jobs

BASELINE = {"margin": 0.3, "temperature": 0.05, "ratio": 1.0}

_HELD: dict[Scale, dict[str, Any]] = {
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


def named(scale: Scale, name: str) -> list[PaperJob]:
    """Return a training of artifacts.toml."""
    return {"baseline": baseline, "without GD": undissipated}[name](scale)


def notes(scale: Scale, _: object = ()) -> list[str]:
    """Return the notes of these trainings for a reader."""
    return [
        *smaller_text(scale, baseline(scale)[0]),
        "the form of the released code, with which the paper's curves were measured: both "
        "directions summed with live positives, so that r pulls about twice",
        "looked at on text that was not trained on, two masks of dropout as views",
    ]


def _cells(
    scale: Scale, values: Mapping[str, float], *, dissipation: str | None = None, **more: Any
) -> list[PaperJob]:
    settings: dict[str, float | str] = {
        "dissipation": dissipation or f"margin:{values['margin']:g}",
        "weight": f"softmax:{values['temperature']:g}",
        "ratio": values["ratio"],
        "variant": "released",
    }
    return text_jobs(scale, "paradigm", settings, scored=False, **more)
