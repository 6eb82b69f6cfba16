"""Figure 4: how hard one negative is pushed by every loss, over both angles."""

from functools import partial
from itertools import pairwise

import numpy as np

from isotrope.diagnostics import FIGURES
from papers.machinery.artifact import Rendered, Results, Scale
from papers.machinery.verdicts import Ruling
from papers.nie2023.figure2a import INFONCE
from papers.nie2023.norms import (
    PANELS,
    agreement,
    alike,
    drawn,
    equation,
    misprinted,
    side_by_side,
    surfaces,
)

TITLES = tuple(panel.title for panel in FIGURES["norm"])
DECOUPLED = ("align & uniform", "DCL")
MARGIN_LOSSES = ("MPT", "MET", "MAT")
MANY = 1e24  # negatives, by eq. 16


def render(scale: Scale, results: Results) -> Rendered:
    """Return the surfaces, beside the paper's equations and the findings of appendix B."""
    apart = [_apart(scale, float(PANELS[title].negatives or 0)) for title in INFONCE]
    apart.append(_apart(scale, MANY))
    along = {
        title: _along(scale, title) for title in (INFONCE[0], *DECOUPLED, "DCL+", *MARGIN_LOSSES)
    }
    close = {
        title: alike(scale, PANELS[INFONCE[0]], PANELS[title]) for title in ("DCL+", *MARGIN_LOSSES)
    }
    return Rendered(
        tables=[side_by_side(scale, "uniformity", TITLES)],
        verdicts=[
            agreement(scale, "uniformity", TITLES),
            misprinted(scale, "uniformity"),
            Ruling(
                "with ever more negatives InfoNCE pushes one of them as DCL does",
                all(b < a for a, b in pairwise(apart)) and apart[-1] < 1e-6,
                f"mean relative difference {apart[0]:.2f} with 64 negatives, {apart[-2]:.2f} with "
                f"{PANELS[INFONCE[-1]].negatives:,}, {apart[-1]:.0e} with {MANY:g}",
            ),
            Ruling(
                "InfoNCE's push dissipates with a near positive, that of decoupled forms does not",
                along[INFONCE[0]] > 0.99 and all(along[title] < 1e-9 for title in DECOUPLED),
                _shares(along, (INFONCE[0], *DECOUPLED)),
            ),
            Ruling(
                "DCL+ and the losses with a margin dissipate like InfoNCE",
                all(along[title] == 1 for title in ("DCL+", *MARGIN_LOSSES)),
                f"{_shares(along, ('DCL+', *MARGIN_LOSSES))}; active or not as InfoNCE is, "
                "share of the plane: "
                + ", ".join(f"{title} {share:.0%}" for title, share in close.items()),
            ),
        ],
        pictures={"figure4": partial(drawn, scale, "uniformity", TITLES)},
    )


def _along(scale: Scale, title: str) -> float:
    """The largest part of a push that is lost where the positive is nearest, at any negatives."""
    value = surfaces(scale, "uniformity")[title].value
    near, far = value[:, value[-1] > 0][[0, -1]]
    return float((1 - near / far).max())


def _apart(scale: Scale, k: float) -> float:
    """Mean relative difference of InfoNCE's push from DCL's at the same temperature."""
    at, panel = surfaces(scale, "uniformity")[INFONCE[0]], PANELS[INFONCE[0]]
    p, n = np.meshgrid(at.positive, at.negative[:-1], indexing="ij")  # at pi neither pushes
    dcl = np.sin(n) / panel.settings["temperature"] / k
    return float((1 - equation(panel, "uniformity", p, n, k) / dcl).mean())


def _shares(along: dict[str, float], titles: tuple[str, ...]) -> str:
    return "lost: " + ", ".join(f"{title} {along[title]:.0%}" for title in titles)
