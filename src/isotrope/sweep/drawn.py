"""Drawn: the scores of a sweep over each setting, as one picture."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from isotrope.report.scores import Scores, SettingPanel, score_panels
from isotrope.report.surfaces import Picture
from isotrope.sweep.asked import Sweep, kind_of
from isotrope.sweep.trials import Stage, Trial, best_of
from isotrope.sweep.varied import Varied

__all__ = ["picture"]

_MOST = 6  # lines in a panel; of more, the best stands for all


def picture(asked: Sweep, stages: Sequence[Stage]) -> Picture:
    """Draw the score over each setting, a panel for each.

    A grid has a line for each combination of the others, up to six, else the best and the mean
    over the others; what was drawn or chosen has a point for each trial.
    """
    panels = []
    for place, stage in enumerate(stages, start=1):
        head = f"stage {place}: " if len(asked.stages) > 1 else ""
        panels += [_panel(asked, stage, one, head) for one in stage.varied]
        if kind_of(asked, stage.varied) == "optuna":
            panels.append(_course(asked, stage, head))
    return score_panels(panels)


def _panel(asked: Sweep, stage: Stage, one: Varied, head: str) -> SettingPanel:
    grid = kind_of(asked, stage.varied) == "grid"
    series = _lines(asked, stage, one) if grid else _points(asked, stage, one)
    number = _all_numbers(one)
    low = [float(value) for value in one.ends] if number else []
    return SettingPanel(
        f"{head}{one.name}",
        one.name,
        asked.metric,
        series,
        points=number and not grid,
        log_x=one.span.log
        if one.span
        else bool(low) and min(low) > 0 and max(low) / min(low) >= 10,
    )


def _all_numbers(one: Varied) -> bool:
    return all(_is_number(value) for value in one.ends)


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _place(one: Varied) -> Callable[[Trial], Any]:
    """Return what says where a trial stands on the axis of a setting."""
    if _all_numbers(one):
        return lambda trial: float(trial.values[one.name])
    return lambda trial: trial.values[one.name]


def _lines(asked: Sweep, stage: Stage, one: Varied) -> list[Scores]:
    """A line for each combination of the others."""
    others = [other.name for other in stage.varied if other.name != one.name]
    groups: dict[str, list[Trial]] = {}
    for trial in stage.trials:
        title = ", ".join(f"{name} {trial.values[name]}" for name in others)
        groups.setdefault(title, []).append(trial)
    where = _place(one)
    if len(groups) <= _MOST:
        return [
            Scores(
                title or asked.metric,
                [where(trial) for trial in trials],
                [trial.score for trial in trials],
                [trial.deviation for trial in trials],
            )
            for title, trials in groups.items()
        ]
    by_value: dict[Any, list[float]] = {}
    for trial in stage.trials:
        if trial.score is not None:
            by_value.setdefault(where(trial), []).append(trial.score)
    best = max if asked.highest else min
    return [
        Scores("best of the others", list(by_value), [best(v) for v in by_value.values()]),
        Scores("mean of the others", list(by_value), [sum(v) / len(v) for v in by_value.values()]),
    ]


def _points(asked: Sweep, stage: Stage, one: Varied) -> list[Scores]:
    """All trials, and the best; of names the best score of each."""
    where, best = _place(one), best_of(stage.trials, highest=asked.highest)
    if not _all_numbers(one):
        top: dict[str, float] = {}
        for trial in stage.trials:
            if trial.score is not None:
                known = top.get(where(trial), trial.score)
                top[where(trial)] = (max if asked.highest else min)(known, trial.score)
        return [Scores("best of each", list(top), list(top.values()))]
    groups: Mapping[str, list[Trial]] = {
        "trials": [trial for trial in stage.trials if trial is not best],
        "best": [best] if best else [],
    }
    return [
        Scores(
            title,
            [where(trial) for trial in trials],
            [trial.score for trial in trials],
            [trial.deviation for trial in trials],
        )
        for title, trials in groups.items()
    ]


def _course(asked: Sweep, stage: Stage, head: str) -> SettingPanel:
    """Scores in the order of the trials, and the best so far."""
    best, so_far = None, []
    for trial in stage.trials:
        if trial.score is not None:
            known = trial.score if best is None else best
            best = (max if asked.highest else min)(known, trial.score)
        so_far.append(best)
    numbers: list[float | str] = [float(trial.number) for trial in stage.trials]
    scores = [trial.score for trial in stage.trials]
    series = [Scores("trial", numbers, scores), Scores("best so far", numbers, so_far)]
    return SettingPanel(f"{head}trials in their order", "trial", asked.metric, series)
