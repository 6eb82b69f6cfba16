"""Figure 8b: the ratios that dynamic objectives would have while the baseline trains."""

from dataclasses import replace
from functools import cache, partial

from isotrope.paradigm import registry
from isotrope.paradigm.portrait import summary
from isotrope.reports.surfaces import Picture
from papers.li2024.baseline import baseline, notes
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.logged import (
    ReadNumber,
    at_all_steps,
    at_end,
    at_start,
    by_step,
    curve,
    divergence_notes,
)
from papers.machinery.verdicts import Ruling, Spread, spread
from papers.paper_numbers import printed
from papers.plots.charts import Chart, charts

_NAMED = ("arccon", "met")
_SHOWN = (*_NAMED, "mixcse")  # the third, in the released code
_BOUND = printed("unified-gradient", "figure8").rows[
    "lower bound of ArcCon's and MET's ratio in training"
][0]


def render(scale: Scale, results: Results) -> Rendered:
    """Follow all of them over one kind of training."""
    trainings = baseline(scale)
    rows = []
    for name in _dynamic():
        numbers = [
            spread(at(results, trainings, _read(name, what)).values())
            for what in ("mean", "above_one")
            for at in (at_start, at_end)
        ]
        numbers.append(spread(at_end(results, trainings, _moved(name)).values()))
        none = "-" if any(numbers) else None  # of no anchor, or not run
        paper = f"above {_BOUND}" if name in _NAMED else "-"
        rows.append([name, paper, *(_short(level) if level else none for level in numbers)])
    verdicts = []
    for name in _NAMED:
        least = min(at_all_steps(results, trainings, _read(name, "mean")), default=None)
        claim = f"the ratio of {name} stays above {_BOUND} throughout the training"
        evidence = "not run" if least is None else f"smallest mean of any step and seed {least:.3f}"
        holds = None if least is None else least > float(str(_BOUND))
        verdicts.append(Ruling(claim, holds, evidence))
    return Rendered(
        tables=[
            Sheet(
                [
                    "objective",
                    "paper",
                    "mean before",
                    "mean after",
                    "above 1 before",
                    "above 1 after",
                    "moved after",
                ],
                rows,
                title="ratio over the anchors that each objective would still move, the part above "
                "1, and the part of all anchors that it moves",
            )
        ],
        verdicts=verdicts,
        pictures={"figure8b": partial(_drawn, results, trainings)},
        notes=[
            *notes(scale),
            *divergence_notes(results, baseline(scale)),
            "every objective with its default settings, on the embeddings of the baseline",
            "a negative ratio: pull and push have opposite signs, as where most similarities are "
            "above what a term of the loss wants; it is not drawn on the logarithmic axis",
        ],
    )


@cache
def _dynamic() -> tuple[str, ...]:
    objectives = {name: registry.build(name) for name in registry.names()}
    return tuple(
        name for name, objective in objectives.items() if summary(objective)["ratio"] == "dynamic"
    )


def _read(name: str, what: str) -> ReadNumber:
    return lambda row: row["ratios"][name][what]


def _moved(name: str) -> ReadNumber:
    return lambda row: row["ratios"][name]["active"] / row["ratios"][name]["count"]


def _short(level: Spread) -> str:
    more = "" if level.deviation is None else f" ± {level.deviation:.2g}"
    return f"{level.mean:.3g}{more}"


def _drawn(results: Results, trainings: list[PaperJob]) -> Picture:
    curves = {
        name: curve(name, by_step(results, trainings, _read(name, "mean"))) for name in _dynamic()
    }
    shown = [curves[name] for name in _SHOWN]
    return charts(
        [
            Chart("the paper's", shown, "step", "ratio", marks={"1": 1.0}),
            Chart(
                "all",
                [replace(plotted, spread=None) for plotted in curves.values()],
                "step",
                "ratio",
                log_y=True,
                marks={"1": 1.0},
            ),
        ],
        columns=2,
    )


ARTIFACT = Artifact(
    title="figure 8b: dynamic ratios over the training of the baseline",
    jobs=baseline,
    render=render,
)
