"""Plots the scores of a sweep over each setting in one picture."""

import math
from collections.abc import Mapping, Sequence

from isotrope.reports.scores import Scores, SettingPanel, score_panels
from isotrope.reports.surfaces import Picture
from isotrope.sweeps.search_space import Varied
from isotrope.sweeps.spec import Sweep
from isotrope.sweeps.trials import Stage, Trial, best_of

_MOST = 6  # lines in a panel


def picture(spec: Sweep, stages: Sequence[Stage]) -> Picture:
    """Draw the score over each setting, a panel for each.

    A grid has a line for each combination of the other settings, if there are up to six; all else
    has a point for each trial.
    """
    panels = []
    for place, stage in enumerate(stages, start=1):
        head = f"stage {place}: " if len(spec.stages) > 1 else ""
        panels += [_panel(spec, stage, setting, head) for setting in stage.varied]
    return score_panels(panels)


def _panel(spec: Sweep, stage: Stage, setting: Varied, head: str) -> SettingPanel:
    lines = _by_others(stage, setting)
    points = spec.sampler_of(stage.varied) != "grid" or len(lines) > _MOST
    if points:
        best = best_of(stage.trials, highest=spec.highest)
        others = [trial for trial in stage.trials if trial is not best]
        lines = {"trials": others, "best": [best] if best else []}
    numbers = all(_is_number(value) for value in setting.ends)
    series = [
        Scores(
            title or spec.metric,
            [float(v) if numbers else v for v in (t.values[setting.name] for t in trials)],
            [trial.score for trial in trials],
            [trial.deviation for trial in trials],
        )
        for title, trials in lines.items()
    ]
    ends = [float(value) for value in setting.ends] if numbers else [0.0]
    log = setting.span.log if setting.span else min(ends) > 0 and max(ends) / min(ends) >= 10
    return SettingPanel(f"{head}{setting.name}", setting.name, spec.metric, series, points, log)


def _by_others(stage: Stage, setting: Varied) -> Mapping[str, Sequence[Trial]]:
    """Return the trials by the values of the other settings."""
    others = [other.name for other in stage.varied if other.name != setting.name]
    groups: dict[str, list[Trial]] = {}
    for trial in stage.trials:
        title = ", ".join(f"{name} {trial.values[name]}" for name in others)
        groups.setdefault(title, []).append(trial)
    return groups


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False
