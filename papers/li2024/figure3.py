"""Figure 3: the hardest negative's share of the weight over mu_neg, at several temperatures."""

from collections.abc import Mapping
from functools import partial

from isotrope.diagnostics import Landscape, numbers
from isotrope.reports import Picture, curves
from papers.li2024.simulated import PAPER, set_up, simulated, surfaces
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.paper_numbers import printed

_DRAWN = ("mu_neg over pi", "points of each axis", "batches of each pair", "negatives of a batch")
_ALL, _MOST = 0.99, 0.5  # of the weight


def render(scale: Scale, results: Results) -> Rendered:
    """Simulate with and without the gate of the released code; nothing is trained."""
    plain, gated = simulated(scale, "weight"), simulated(scale, "weight", gated=True)
    sharp = printed(PAPER, "figure3").rows["temperature where the share falls"][0]
    low = [
        title for title, landscape in plain.items() if _temperature(landscape) < float(str(sharp))
    ]
    high = [title for title in plain if title not in low]
    largest, gated_largest = (
        {title: float(landscape.value.max()) for title, landscape in kind.items()}
        for kind in (plain, gated)
    )
    holds_gated = all(gated_largest[t] > _ALL for t in low) and all(
        gated_largest[t] < _MOST for t in high
    )
    holds_plain = all(largest[t] > _MOST for t in low)
    return Rendered(
        tables=[set_up(scale, _DRAWN), _readings(plain, gated, float(str(sharp)))],
        verdicts=[
            Ruling(
                "with the gate, the hardest negative comes to have all of the weight as negatives "
                f"move away, at each tau below {sharp} and not at {sharp}",
                holds_gated,
                f"largest share {_told(gated_largest)}; all: above {_ALL}, not: below {_MOST}",
            ),
            Ruling(
                "without the gate, the hardest negative comes to have most of the weight at each "
                f"tau below {sharp}",
                holds_plain,
                f"largest share {_told(largest)}; most: above {_MOST}",
            ),
        ],
        pictures={"figure3": partial(_curves, plain), "figure3-gated": partial(_curves, gated)},
    )


def _readings(
    plain: Mapping[str, Landscape], gated: Mapping[str, Landscape], sharp: float
) -> Sheet:
    places = list(numbers("weight", next(iter(plain.values()))))
    rows = []
    for title, heights in plain.items():
        for kind, landscape in (("no", heights), ("yes", gated[title])):
            end = float(landscape.value.max())
            paper = "1 at last" if _temperature(heights) < sharp else "not 1"
            same = end > _ALL if paper != "not 1" else end < _MOST
            numbers_of = [f"{share:.3f}" for share in numbers("weight", landscape).values()]
            rows.append([title, kind, paper, *numbers_of, "matches" if same else "differs"])
    return Sheet(
        ["weight", "gate", "paper, read off the text", *places, "verdict"],
        rows,
        title="share of the hardest negative at mu_neg",
    )


def _temperature(landscape: Landscape) -> float:
    return float(landscape.objective.temperature)  # type: ignore[attr-defined]


def _told(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{share:.2f} at {title}" for title, share in shares.items())


def _curves(landscapes: Mapping[str, Landscape]) -> Picture:
    return curves(surfaces(landscapes), "share of the hardest negative")
