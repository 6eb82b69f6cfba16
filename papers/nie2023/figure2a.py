"""Figure 2a: how hard InfoNCE and its decoupled forms pull the positive, over both angles."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from isotrope.diagnostics import Landscape
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.nie2023.norms import (
    COUNTS,
    PANELS,
    agreement,
    drawn,
    equation,
    lost,
    shaded,
    side_by_side,
    surfaces,
)

INFONCE = [f"InfoNCE, {count:,} negatives" for count in COUNTS]
DECOUPLED = ["align & uniform", "DCL"]
TITLES = (*INFONCE, *DECOUPLED)
MORE = (65_536.0, 1e10, 1e20, 1e24)
"""Negatives beyond those of the panels, by eq. 7; 65,536 is what the paper says of images."""


def render(scale: Scale, results: Results) -> Rendered:
    """Return the surfaces, beside the paper's equations and what it reads off its own."""
    first = surfaces(scale, "alignment")[INFONCE[0]]
    limit = [(float(k), *_shares(first, k)) for k in (*COUNTS, *MORE)]
    dark = [share for _, share, _ in limit]
    apart = [difference for *_, difference in limit]
    rows = [
        [f"{k:,.0f}" if k < 1e6 else f"{k:g}", f"{100 * s:.1f} %", f"{d:.2g}"] for k, s, d in limit
    ]
    across = {title: lost(surfaces(scale, "alignment")[title].value) for title in TITLES}
    return Rendered(
        tables=[
            side_by_side(scale, "alignment", TITLES),
            Sheet(["negatives", "shaded", "mean difference"], rows, title="InfoNCE against DCL"),
        ],
        verdicts=[
            agreement(scale, "alignment", TITLES),
            Ruling(
                "the shaded part of InfoNCE shrinks with the number of negatives",
                _falls(dark[: len(COUNTS)]),
                ", ".join(f"{row[0]}: {row[1]}" for row in rows[: len(COUNTS)]),
            ),
            Ruling(
                "with ever more negatives InfoNCE's surface becomes that of DCL",
                _falls(apart) and apart[-1] < 1e-6,
                f"mean relative difference {rows[0][2]} with {rows[0][0]} negatives, {rows[4][2]} "
                f"with {rows[4][0]}, {apart[-1]:.0e} with {MORE[-1]:g}",
            ),
            Ruling(
                "InfoNCE's pull dissipates as negatives go away, that of decoupled forms does not",
                all(across[title] < 1e-9 for title in DECOUPLED) and across[INFONCE[0]] > 0.99,
                "lost from the nearest negatives to the farthest: "
                + ", ".join(f"{title} {100 * across[title]:.0f} %" for title in TITLES),
            ),
        ],
        pictures={"figure2a": partial(drawn, scale, "alignment", TITLES)},
    )


def _shares(at: Landscape, k: float) -> tuple[float, float]:
    """How much of InfoNCE's surface is shaded, and its mean relative difference from DCL's."""
    p, n = np.meshgrid(at.positive, at.negative, indexing="ij")
    panel = PANELS[INFONCE[0]]
    value = equation(panel, "alignment", p, n, k)
    dcl = np.sin(p) / panel.settings["temperature"]
    return shaded(value), float((1 - value / dcl).mean())


def _falls(values: Sequence[float]) -> bool:
    return all(b < a for a, b in pairwise(values))
