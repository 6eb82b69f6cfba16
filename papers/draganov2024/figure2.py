"""Figure 2: steps to convergence by the norm of embeddings and by the angle of pairs."""

import functools

import numpy as np

from isotrope.reports import Picture
from papers.draganov2024.convergence import (
    ANGLES,
    NORMS,
    Convergence,
    ConvergenceProtocol,
    Start,
    convergence,
)
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling, all_of
from papers.paper_numbers import printed
from papers.plots.charts import Chart, Series, charts

NOTEBOOK = (6, 24, 54, 96, 385, 869, 1547, 2416, 3463, 4737, 6156, 7822, 9662)
"""Steps by norm, in a notebook of the authors' later paper, which drew other pairs."""
WIDEST = 187
"""Its steps at the largest angle."""
STARTS: dict[Scale, tuple[tuple[Start, ...], tuple[Start, ...]]] = {
    "smoke": (NORMS[:4], (ANGLES[0], ANGLES[24], ANGLES[-1])),
    "cpu": (NORMS, ANGLES),
    "paper": (NORMS, ANGLES),
}
FEW = ConvergenceProtocol(pairs=50, rate=1.0)
"""Of smoke: the same learning rate for a pair, fewer pairs."""


@functools.cache
def simulated(scale: Scale) -> tuple[list[Convergence], list[Convergence]]:
    """Return the outcomes of the starts that differ in norm, and of those that differ in angle."""
    norms, angles = STARTS[scale]
    ends = convergence((*norms, *angles), FEW if scale == "smoke" else ConvergenceProtocol())
    return ends[: len(norms)], ends[len(norms) :]


def render(scale: Scale, results: Results) -> Rendered:
    """Simulate; nothing is trained but the embeddings themselves."""
    norms, angles = simulated(scale)
    paper = {row: value for row, (value,) in printed("cosine-pitfalls", "figure2").rows.items()}
    unit_start = next(end for end in norms if end.start.norm == 1)
    middle = min(angles, key=lambda end: abs(end.angle - np.pi / 2))
    far, wide = norms[-1], angles[-1]
    square = (far.start.norm / norms[0].start.norm) ** 2
    rise = _over(far, norms[0])
    tenfold = _over(far, unit_start) if far.start.norm == 10 else None
    slower = _over(wide, middle)
    enough = [
        None if end.steps is None or end.at_least is None else end.steps >= end.at_least
        for end in (*norms, *angles)
    ]
    rows = [
        [f"{end.start.norm:g}", str(printed_steps), _shown(end.steps), _shown(end.at_least)]
        for end, printed_steps in zip(norms, NOTEBOOK, strict=False)
    ]
    slowdowns: list[list[str | None]] = [
        [
            "norm 10 over 1",
            f"{paper['slowdown by large norms']}",
            None if tenfold is None else f"{tenfold:.1f}",
        ],
        [
            f"angle {wide.angle:.2f} over {middle.angle:.2f}",
            f"{paper['slowdown by large angles']} (notebook: {WIDEST} steps)",
            None if slower is None else f"{slower:.2f} ({wide.steps} steps)",
        ],
    ]
    return Rendered(
        tables=[
            Sheet(["norm", "notebook: steps", "ours: steps", "theorem 3.3, at least"], rows),
            Sheet(["slowdown", "paper: about", "ours"], slowdowns),
        ],
        verdicts=[
            Ruling(
                "steps grow with the square of the norm, a hundred times from 1 to 10",
                all_of(
                    [None if rise is None else 0.5 < rise / square < 2]
                    + ([0.8 < tenfold / 100 < 1.25] if tenfold else [])
                ),
                f"{rise or 0:.0f} times where the square of the norm is {square:.0f} times",
            ),
            Ruling(
                "the largest angles take about twice the steps of right ones",
                None if slower is None else 1.5 < slower < 2.5,
                f"{slower or 0:.2f}",
            ),
            Ruling(
                "no start arrives in fewer steps than theorem 3.3, as corrected, allows",
                all_of(enough),
            ),
        ],
        pictures={"figure2": functools.partial(_drawn, scale)},
    )


def _over(numerator: Convergence, denominator: Convergence) -> float | None:
    return (
        None
        if numerator.steps is None or not denominator.steps
        else numerator.steps / denominator.steps
    )


def _shown(number: int | None) -> str:
    return "-" if number is None else f"{number}"


def _drawn(scale: Scale) -> Picture:
    def lines(ends: list[Convergence], x: list[float]) -> list[Series]:
        return [
            Series("cosine", x, [end.steps for end in ends]),
            Series("theorem 3.3: at least", x, [end.at_least for end in ends]),
        ]

    norms, angles = simulated(scale)
    over_norm = lines(norms, [end.start.norm for end in norms])
    over_angle = lines(angles, [end.angle for end in angles])
    norm, angle = "norm of the embeddings", "angle of the pairs, radians"
    return charts(
        [
            Chart("", over_norm, norm, "steps", log_x=True, log_y=True),
            Chart("", over_angle, angle, "steps"),
        ]
    )
