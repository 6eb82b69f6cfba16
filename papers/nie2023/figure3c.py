"""Figure 3c: the three probes while MPT trains with a margin that is too small."""

import dataclasses

from papers.machinery.artifact import Artifact, Found, Scale, Shown
from papers.machinery.job import Cell
from papers.machinery.logged import after
from papers.machinery.over_seeds import told
from papers.machinery.verdicts import BySeed, Spread, Verdict, above, all_of, minus
from papers.nie2023.losses import MARGINS, with_margin
from papers.nie2023.probes import probed

SMALL, BEST, _ = MARGINS
SIDES = ("train", "dev")


def cells(scale: Scale) -> list[Cell]:
    """The small margin, and the best one to compare it with."""
    return [*with_margin(scale, SMALL), *with_margin(scale, BEST)]


def show(scale: Scale, found: Found) -> Shown:
    """Return the curves, and how their ends differ from those of the best margin."""
    shown = probed(scale, found, "figure3c", with_margin(scale, SMALL), ())
    more = {look: _change(scale, found, look) for look in _looks("contrastive", "uniformity")}
    wider = {side: _wider(scale, found, side) for side in SIDES}
    verdicts = [
        Verdict(
            f"m = {SMALL:.2f} leaves L_cl and L_uniform higher than m = {BEST:.2f}, on both sets",
            all_of(above(change) for change in more.values()),
            told(more, 3),
        ),
        Verdict(
            "the two margins differ less in L_align than in L_uniform, on both sets",
            all_of(above(change) for change in wider.values()),
            f"how much less: {told(wider, 3)}" if told(wider, 3) else "",
        ),
    ]
    return dataclasses.replace(shown, verdicts=verdicts)


def _looks(*probes: str) -> list[str]:
    return [f"{side} {probe}" for probe in probes for side in SIDES]


def _ends(scale: Scale, found: Found, margin: float, look: str) -> BySeed:
    return after(found, with_margin(scale, margin), lambda row: row.get(look))


def _change(scale: Scale, found: Found, look: str) -> Spread | None:
    return minus(*(_ends(scale, found, margin, look) for margin in (SMALL, BEST)))


def _wider(scale: Scale, found: Found, side: str) -> Spread | None:
    """By how much the difference in uniformity is larger than that in alignment."""
    sizes = []
    for look in (f"{side} uniformity", f"{side} alignment"):
        a, b = (_ends(scale, found, margin, look) for margin in (SMALL, BEST))
        sizes.append({seed: abs(a[seed] - b[seed]) for seed in a if seed in b})
    return minus(*sizes)


ARTIFACT = Artifact(
    title="figure 3c: L_cl, L_align and L_uniform while MPT trains with m = .10",
    cells=cells,
    show=show,
)
