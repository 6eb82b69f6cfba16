"""Figure 3c: the three probes while MPT trains with a margin that is too small."""

import dataclasses

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.logged import at_end
from papers.machinery.over_seeds import format_changes
from papers.machinery.verdicts import BySeed, Ruling, Spread, above, all_of, minus
from papers.nie2023.losses import MARGINS, with_margin
from papers.nie2023.probes import probed

SMALL, BEST, _ = MARGINS
SIDES = ("train", "dev")


def jobs(scale: Scale) -> list[PaperJob]:
    """The small margin, and the best one to compare it with."""
    return [*with_margin(scale, SMALL), *with_margin(scale, BEST)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the curves, and how their ends differ from those of the best margin."""
    rendered = probed(scale, results, "figure3c", with_margin(scale, SMALL), ())
    more = {probe: _change(scale, results, probe) for probe in _looks("contrastive", "uniformity")}
    wider = {side: _wider(scale, results, side) for side in SIDES}
    verdicts = [
        Ruling(
            f"m = {SMALL:.2f} leaves L_cl and L_uniform higher than m = {BEST:.2f}, on both sets",
            all_of(above(change) for change in more.values()),
            format_changes(more, 3),
        ),
        Ruling(
            "the two margins differ less in L_align than in L_uniform, on both sets",
            all_of(above(change) for change in wider.values()),
            f"how much less: {format_changes(wider, 3)}" if format_changes(wider, 3) else "",
        ),
    ]
    return dataclasses.replace(rendered, verdicts=verdicts)


def _looks(*probes: str) -> list[str]:
    return [f"{side} {probe}" for probe in probes for side in SIDES]


def _ends(scale: Scale, results: Results, margin: float, probe: str) -> BySeed:
    return at_end(results, with_margin(scale, margin), lambda row: row.get(probe))


def _change(scale: Scale, results: Results, probe: str) -> Spread | None:
    return minus(*(_ends(scale, results, margin, probe) for margin in (SMALL, BEST)))


def _wider(scale: Scale, results: Results, side: str) -> Spread | None:
    """By how much the difference in uniformity is larger than that in alignment."""
    sizes = []
    for probe in (f"{side} uniformity", f"{side} alignment"):
        a, b = (_ends(scale, results, margin, probe) for margin in (SMALL, BEST))
        sizes.append({seed: abs(a[seed] - b[seed]) for seed in a if seed in b})
    return minus(*sizes)


ARTIFACT = Artifact(
    title="figure 3c: L_cl, L_align and L_uniform while MPT trains with m = .10",
    jobs=jobs,
    render=render,
)
