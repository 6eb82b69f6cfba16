"""Figure 1a: alignment over uniformity of STS-B's dev set along training, coloured by score."""

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import format_changes, format_spread
from papers.machinery.verdicts import RULE, Spread, Verdict, above, all_of, minus, spread
from papers.nie2023.losses import DECOUPLED, NAMES, longer

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

LOSSES = ("infonce", *DECOUPLED)
NEAR = 0.1  # of the ranges of alignment and uniformity

Place = tuple[float, float, float]
"""Uniformity, alignment, score; the first of a training is that of the untrained encoder."""


def jobs(scale: Scale) -> list[PaperJob]:
    """InfoNCE and its two decoupled forms."""
    return [job for objective in LOSSES for job in longer(scale, objective)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the ends of each path, and whether places tell scores."""
    paths = {objective: _paths(scale, results, objective) for objective in LOSSES}
    matched = {name: _matched(paths["infonce"], paths[name]) for name in DECOUPLED}
    run = all(paths[name].keys() & paths["infonce"].keys() for name in DECOUPLED)
    ahead = {NAMES[name]: spread(gaps.values()) for name, gaps in matched.items()}
    fallen = {NAMES[name]: minus(_fall(paths[name]), _fall(paths["infonce"])) for name in DECOUPLED}
    ended = {NAMES[name]: minus(_last(paths["infonce"]), _last(paths[name])) for name in DECOUPLED}
    seeds = {name: len(paths[name].keys() & paths["infonce"].keys()) for name in DECOUPLED}
    met = all_of(
        above(spread(gaps)) if len(gaps) == seeds[name] else False for name, gaps in matched.items()
    )
    near = ", ".join(f"{len(gaps)} of {seeds[name]}" for name, gaps in matched.items())
    return Rendered(
        tables=[_table(paths)],
        verdicts=[
            Verdict(
                "at the places where a decoupled loss comes by, InfoNCE scores higher",
                met if run else None,
                f"STS-B dev, by matched places: {format_changes(ahead) or 'none is near'}; "
                f"seeds with such places: {near}"
                if run
                else "",
            ),
            _between(paths, run=run),
            Verdict(
                "both decoupled losses fall further from their best score than InfoNCE",
                all_of(above(change) for change in fallen.values()) if run else None,
                f"STS-B dev, {format_changes(fallen)}" if run else "",
            ),
            Verdict(
                "InfoNCE ends above both",
                all_of(above(change) for change in ended.values()) if run else None,
                f"STS-B dev, {format_changes(ended)}" if run else "",
            ),
        ],
        pictures={"figure1a": partial(_drawn, paths)},
        notes=[
            "alignment (alpha = 2) of the pairs of STS-B's dev set scored above 4, uniformity "
            "(t = 2) of all its sentences, at every kept step of every seed",
            "the colour is the score of the same dev set: the paper has the average of seven "
            "tasks at every point, which here is scored only at the end",
            f"places match where they differ by less than {NEAR:g} of the ranges of both axes "
            "together; every place of a decoupled loss is compared with InfoNCE's nearest, and "
            "every seed must have some",
            RULE,
        ],
    )


def _paths(scale: Scale, logged: Results, objective: str) -> dict[int, list[Place]]:
    """Where a training comes by, for each seed that was run."""
    results = {job.seed: logged.get(job) for job in longer(scale, objective)}
    return {
        seed: [
            (row["dev set"]["uniformity"], row["dev set"]["alignment"], row["dev"])
            for row in result.details["looks"]
            if "dev set" in row
        ]
        for seed, result in results.items()
        if result is not None
    }


def _matched(path: dict[int, list[Place]], other: dict[int, list[Place]]) -> dict[int, float]:
    """Mean score of ``path`` less that of ``other`` where they are near, by seed."""
    gaps = {}
    for seed in sorted(path.keys() & other.keys()):
        across, up = (_range([*path[seed], *other[seed]], axis) for axis in (0, 1))
        differences = []
        for u, a, score in other[seed][1:]:
            far = [math.hypot((u - x) / across, (a - y) / up) for x, y, _ in path[seed][1:]]
            if far and min(far) < NEAR:
                differences.append(path[seed][1:][far.index(min(far))][2] - score)
        if differences:
            gaps[seed] = statistics.fmean(differences)
    return gaps


def _last(path: Mapping[int, list[Place]]) -> dict[int, float]:
    return {seed: places[-1][2] for seed, places in path.items() if places}


def _fall(path: Mapping[int, list[Place]]) -> dict[int, float]:
    """How far the last score is below the best of its training, by seed."""
    best = {seed: max(score for _, _, score in places) for seed, places in path.items() if places}
    return {seed: best[seed] - score for seed, score in _last(path).items()}


def _range(places: Sequence[Place], axis: int) -> float:
    values = [place[axis] for place in places]
    return max(values) - min(values) or 1.0


def _between(paths: dict[str, dict[int, list[Place]]], *, run: bool) -> Verdict:
    """The best score lies neither at the least nor at the most uniform place."""
    seeds = set.intersection(*(set(path) for path in paths.values())) if run else set()
    inside = []
    for seed in sorted(seeds):
        places = sorted(place for path in paths.values() for place in path[seed])
        best = max(places, key=lambda place: place[2])
        inside.append(places[0][0] < best[0] < places[-1][0])
    return Verdict(
        "the best score lies between the ends of uniformity, not at one of them",
        all(inside) if inside else None,
        f"in {sum(inside)} of {len(inside)} seeds" if inside else "",
    )


def _table(paths: dict[str, dict[int, list[Place]]]) -> Table:
    rows: list[list[str | None]] = []
    for objective, path in paths.items():
        places_by_seed = [places for places in path.values() if places]
        ends = {
            "untrained": [places[0] for places in places_by_seed],
            "best dev": [max(places, key=lambda place: place[2]) for places in places_by_seed],
            "last": [places[-1] for places in places_by_seed],
        }
        for at, places in ends.items():
            values = [_each(places, axis) for axis in (0, 1, 2)]
            rows.append([NAMES[objective], at, *map(format_spread, values)])
    return Table(["loss", "at", "uniformity", "alignment", "STS-B dev"], rows)


def _each(places: Sequence[Place], axis: int) -> Spread | None:
    return spread(place[axis] for place in places)


def _drawn(paths: dict[str, dict[int, list[Place]]]) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    points = []
    for objective, path in paths.items():
        all_places = [place for places in path.values() for place in places]
        u, a, score = ([place[axis] for place in all_places] for axis in (0, 1, 2))
        points.append(Series(NAMES[objective], u, a, colour=score))
    return charts(
        [Chart("STS-B dev", points, "L_uniform", "L_align", kind="points", colour="Spearman")]
    )


ARTIFACT = Artifact(
    title="figure 1a: alignment over uniformity of STS-B dev along training, by score",
    jobs=jobs,
    render=render,
)
