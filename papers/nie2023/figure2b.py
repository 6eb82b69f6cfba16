"""Figure 2b: how hard losses that were made to dissipate pull the positive, over both angles."""

import dataclasses
from functools import partial
from itertools import pairwise

from papers.machinery.artifact import Rendered, Results, Scale
from papers.machinery.verdicts import Ruling
from papers.nie2023.losses import MARGINS
from papers.nie2023.norms import (
    PANELS,
    active,
    agreement,
    alike,
    drawn,
    lost,
    misprinted,
    side_by_side,
    surfaces,
)

BY_MARGIN = [f"MPT, m = {margin:.2f}" for margin in MARGINS]
TITLES = ("DCL+", *BY_MARGIN, "MET", "MAT")
INFONCE = PANELS["InfoNCE, 64 negatives"]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the surfaces, beside the paper's equations and what it says of them."""
    dcl_panel = PANELS["DCL+"]
    same = dataclasses.replace(dcl_panel, settings=INFONCE.settings)
    close, equal = (alike(scale, INFONCE, panel) for panel in (dcl_panel, same))
    area = {title: float(active(scale, PANELS[title]).mean()) for title in TITLES}
    away = {title: lost(surfaces(scale, "alignment")[title].value) for title in TITLES}
    tau, other = (panel.settings["temperature"] for panel in (INFONCE, dcl_panel))
    return Rendered(
        tables=[side_by_side(scale, "alignment", TITLES)],
        verdicts=[
            agreement(scale, "alignment", TITLES),
            misprinted(scale, "alignment"),
            Ruling(
                "at one temperature DCL+ has its gradient where InfoNCE has most of its own",
                equal == 1,
                f"on {equal:.0%} of the plane at tau = {tau:g}, on {close:.0%} at the tuned "
                f"{other:g} and {tau:g}, with 64 negatives",
            ),
            Ruling(
                "all of these losses dissipate as negatives move away",
                all(share == 1 for share in away.values()),
                "lost: " + ", ".join(f"{title} {share:.0%}" for title, share in away.items()),
            ),
            Ruling(
                "a larger margin leaves MPT its gradient on more of the plane",
                all(area[a] < area[b] for a, b in pairwise(BY_MARGIN)),
                ", ".join(f"{title}: {area[title]:.0%}" for title in BY_MARGIN),
            ),
        ],
        pictures={"figure2b": partial(drawn, scale, "alignment", TITLES)},
    )
