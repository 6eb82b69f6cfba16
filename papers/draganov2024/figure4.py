"""Figure 4: the two views of images in a latent space of two dimensions, during training."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from papers.draganov2024.logged import at, format_spread, last, listed, percent, verdict
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.recipes import SEEDS
from papers.machinery.verdicts import RULE, Spread, ahead, spread

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

RUNS = (
    "SimCLR",
    "SimCLR, decay .05",
    "SimCLR, cut 3",
    "BYOL",
    "BYOL, no batch norm",
    "BYOL, cut 9",
)
"""Of ``papers.draganov2024.latent``; the paper draws the first and the fourth."""
ASKED: dict[Scale, dict[str, object]] = {
    "smoke": {"data": "digits", "epochs": 2, "limit": 256, "shown": [0, 1, 2]},
    "cpu": {"data": "digits", "epochs": 16, "limit": 2000, "shown": [0, 1, 4, 16]},
    "paper": {"data": "cifar10", "epochs": 128, "limit": 50_000, "shown": [0, 1, 16, 128]},
}
LEAST = 0.1
"""Of the anchors at the smaller pole, for there to be two."""
FEW = 0.05


def trained(scale: Scale, name: str) -> list[PaperJob]:
    """Return one run, a job for each seed."""
    return [PaperJob("latent", {"run": name, **ASKED[scale]}, seed) for seed in SEEDS[scale]]


def jobs(scale: Scale) -> list[PaperJob]:
    """All runs; of smoke those that the paper draws."""
    return [job for name in _names(scale) for job in trained(scale, name)]


def _names(scale: Scale) -> tuple[str, ...]:
    return (RUNS[0], RUNS[3]) if scale == "smoke" else RUNS


def render(scale: Scale, results: Results) -> Rendered:
    """Return the counts behind the drawings."""
    runs = {name: trained(scale, name) for name in RUNS}
    rows = [
        [
            name,
            format_spread(last(results, trainings, "norm"), 2),
            format_spread(at(results, trainings, "clusters", 1), 2),
            format_spread(last(results, trainings, "clusters"), 2),
            percent(at(results, trainings, "opposite_halves", 1)),
            percent(last(results, trainings, "opposite_halves")),
            percent(last(results, trainings, "far_opposite"), 2),
        ]
        for name, trainings in runs.items()
        if name in _names(scale)
    ]
    header = ["", "norm", "on one line, epoch 1", "at the end", "above pi/2, epoch 1"]
    header += ["above pi/2, at the end", "above 7 pi/8"]
    ends = {name: last(results, runs[name], "clusters") for name in ("SimCLR", "BYOL")}
    pole = _smaller_pole(scale, results)
    opposite = {
        name: at(results, trainings, "opposite_halves", 1)
        for name, trainings in runs.items()
        if name in ("BYOL", "BYOL, no batch norm")
    }
    left = {name: last(results, runs[name], "opposite_halves") for name in ("SimCLR", "BYOL")}
    verdicts = [
        verdict(
            "SimCLR spreads over the directions, BYOL stays on a line",
            [ahead(ends["BYOL"], ends["SimCLR"])],
            listed({f"{name}:": format_spread(level, 2) for name, level in ends.items()}),
        ),
        verdict(
            "after its first epoch BYOL is at two opposite poles",
            [None if pole is None else pole.mean > LEAST],
            listed({"percent of anchors at the smaller one:": percent(pole)}),
        ),
        verdict(
            "batch norm in BYOL's heads puts pairs on opposite halves in the first epoch",
            [ahead(opposite["BYOL"], opposite["BYOL, no batch norm"])],
            listed({f"{name}, percent:": percent(level) for name, level in opposite.items()}),
        ),
        verdict(
            "at the end very few pairs, under 5%, are on opposite halves",
            [None if level is None else level.mean < FEW for level in left.values()],
            listed({f"{name}, percent:": percent(level) for name, level in left.items()}),
        ),
    ]
    return Rendered(
        tables=[Sheet(header, rows)],
        verdicts=verdicts,
        pictures={"figure4": partial(_drawn, scale, results)},
        notes=_notes(scale),
    )


def _smaller_pole(scale: Scale, results: Results) -> Spread | None:
    """The share of BYOL's anchors at the less populated end of the line that they lie on."""
    shares = {}
    for job in trained(scale, "BYOL"):
        result = results.get(job)
        if result is None:
            continue
        x = np.array(result.details["pairs"]["1"]["anchors"], dtype=float)
        angles = np.arctan2(x[:, 1], x[:, 0])
        axis = np.angle(np.exp(2j * angles).mean()) / 2
        share = float((np.cos(angles - axis) > 0).mean())
        shares[job.seed] = min(share, 1 - share)
    return spread(shares)


def _drawn(scale: Scale, results: Results) -> "Picture":
    """Draw the first seed."""
    from papers.draganov2024.pictures import PlanePairs, pairs_in_plane
    from papers.plots.charts import charts

    runs = {}
    for name in _names(scale):
        result = results.get(trained(scale, name)[0])
        if result is None:
            continue
        pairs = []
        for epoch, both in result.details["pairs"].items():
            a, b = (np.array(both[side], dtype=float) for side in ("anchors", "positives"))
            lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            cosines = (a * b).sum(axis=1) / np.where(lengths == 0, 1, lengths)
            pairs.append(PlanePairs(int(epoch), a, b, cosines))
        runs[name] = pairs
    return pairs_in_plane(runs) if runs else charts([])


def _notes(scale: Scale) -> list[str]:
    more = (
        "The paper names neither data nor network of its drawings; ours is a network of two "
        "convolutions with heads of one hidden layer. On one line: length of the mean of "
        "e^(2i theta) over the directions of the anchors. The drawing is of seed 0."
    )
    if scale != "cpu":
        return [more, RULE]
    return [
        more,
        RULE,
        "The digits of scikit-learn, 16 epochs of 11 steps, instead of 128 epochs.",
    ]


ARTIFACT = Artifact(
    title="figure 4: pairs in a latent space of two dimensions", jobs=jobs, render=render
)
