"""Writes a sweep as a table, a picture, a page and a record, with the command of the best trial."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrope.core.files import write_all
from isotrope.core.legible import csv_text
from isotrope.core.progress import format_duration
from isotrope.core.result import Result, provenance
from isotrope.core.run_folder import RunFolder
from isotrope.reports.scores import SettingPanel, score_panels
from isotrope.reports.surfaces import Picture
from isotrope.sweeps.search_space import Varied
from isotrope.sweeps.spec import TABLES, Sweep
from isotrope.sweeps.trials import Stage, Trial, best_of, ranked
from isotrope.training.settings import RunSettings

_MOST_LINES = 6  # in a panel of the picture


def table(spec: Sweep, stage: Stage) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a stage, the best first."""
    names = _names([stage])
    order = ranked(stage.trials, highest=spec.highest)
    order += [trial for trial in stage.trials if trial not in order]
    header = ["", *names, spec.metric, "seeds"]
    rows = [
        [str(place), *(t.values[name] for name in names), _score(t), _runs(spec, t)]
        for place, t in enumerate(order, start=1)
    ]
    return header, rows


def _names(stages: Sequence[Stage]) -> list[str]:
    """Names of the settings that are varied now or were varied in an earlier stage."""
    names = [name for s in stages for name in (*s.fixed, *(setting.name for setting in s.varied))]
    return list(dict.fromkeys(names))


def _score(trial: Trial) -> str:
    if trial.score is None:
        missing = f"no {trial.metric}" if trial.results else "not run"
        return next(iter(trial.notes.values()), missing)
    more = "" if trial.deviation is None else f" ± {trial.deviation:.2g}"
    return f"{trial.score:.5g}{more}"


def _runs(spec: Sweep, trial: Trial) -> str:
    done = len(trial.scores)
    return str(done) if done == len(spec.seeds) else f"{done} of {len(spec.seeds)}"


def best_command(spec: Sweep, stages: Sequence[Stage], positional: str) -> str | None:
    """Return the command line of the best setting, or None."""
    best = best_of(stages[-1].trials, highest=spec.highest) if stages else None
    if best is None:
        return None
    settings = spec.run(best.values, spec.seeds[0])
    again = settings.model_copy(update={"output": str(spec.output / "best")})
    return command(again, positional)


def removed_models(spec: Sweep, stages: Sequence[Stage]) -> str | None:
    """Return a sentence on missing models of the best setting; None if none is missing."""
    best = best_of(stages[-1].trials, highest=spec.highest) if stages else None
    if best is None:
        return None
    models = {seed: RunFolder(spec.folder(best.values, seed)).model for seed in best.results}
    seeds = [str(seed) for seed, model in models.items() if not model.is_dir()]
    if not seeds:
        return None
    return (
        f"To train the removed models of the best setting again, run its command with --seed "
        f"{' or '.join(seeds)} (--keep best removes models while another setting is the best)."
    )


def command(settings: RunSettings, positional: str) -> str:
    """Return the command line that trains with these settings.

    Args:
        settings: The settings of a run.
        positional: the setting that has no flag.
    """
    values, fields = settings.model_dump(), type(settings).ordered()
    first = values[positional]
    verb = {"text": "train", "images": "train-images"}[settings.kind]
    words = ["isotrope", verb, *(first if isinstance(first, list) else [first])]
    for name, field in fields.items():
        value = values[name]
        default = field.get_default(call_default_factory=True)
        if name in (positional, "progress") or value == default:
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, dict):
            prefix = name.removesuffix("_settings")
            words += [word for k, v in value.items() for word in _typed(f"--{prefix}.{k}", v)]
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, list):
            words += [word for item in value for word in _typed(flag, item)] or [flag]
        else:
            words += _typed(flag, value)
    return shlex.join(words)


def _typed(flag: str, value: object) -> list[str]:
    """A flag and its value as they are typed."""
    text = str(value)
    if isinstance(value, float) and float(short := f"{value:.12g}") == value:
        text = short
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def as_csv(spec: Sweep, stages: Sequence[Stage]) -> str:
    """Return one row for each trial: values, score, scores of the seeds, folders."""
    names = _names(stages)
    rows: list[list[object]] = []
    seeds = [f"seed {seed}" for seed in spec.seeds]
    header = ["stage", "trial", *names, spec.metric, "deviation", *seeds]
    for place, stage in enumerate(stages, start=1):
        for trial in stage.trials:
            seconds = [r.metrics.get("seconds") for r in trial.results.values()]
            measured = [float(s) for s in seconds if isinstance(s, int | float)]
            folder = spec.folder(trial.values, spec.seeds[0]).relative_to(spec.output)
            rows.append(
                [
                    place,
                    trial.number,
                    *(trial.values.get(name, "") for name in names),
                    _cell(trial.score),
                    _cell(trial.deviation),
                    *(_cell(trial.scores.get(seed)) for seed in spec.seeds),
                    _cell(sum(measured) if measured else None),
                    folder,
                    "; ".join(dict.fromkeys(trial.notes.values())),
                ]
            )
    return csv_text([*header, "seconds", "folder", "note"], rows)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"


def as_markdown(spec: Sweep, stages: Sequence[Stage], again: str, best: str | None) -> str:
    """Return a page: the tables, best first, the picture, the best trial, and its command.

    Args:
        spec: the sweep.
        stages: their outcomes.
        again: Command line of the sweep.
        best: The command line of the best setting.
    """
    goal = "highest" if spec.highest else "lowest"
    parts = [f"# Sweep of {', '.join(_names(stages))}: {goal} {spec.metric}"]
    for place, stage in enumerate(stages, start=1):
        header, rows = table(spec, stage)
        if len(spec.stages) > 1:
            fixed = ", ".join(f"{name} = {value}" for name, value in stage.fixed.items())
            parts.append(f"**Stage {place}**" + (f", with {fixed}" if fixed else ""))
        lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
        parts.append("\n".join(lines))
    parts.append("![scores by setting](sweep.svg)")
    if best is not None:
        parts.append(f"The best:\n\n```\n{best}\n```")
    if removed := removed_models(spec, stages):
        parts.append(removed)
    seeds = ", ".join(map(str, spec.seeds))
    how = {"grid": "every combination", "random": "drawn", "tpe": "chosen by Optuna's TPE"}
    notes = [f"- settings: {how[spec.sampler]}; seeds {seeds}"]
    notes += [f"- {about}" for about in _where(stages)]
    parts.append("\n".join([*notes, f"- command: `{again}`"]))
    return "\n\n".join(parts) + "\n"


def _row(cells: Sequence[str]) -> str:
    plain = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
    return "| " + " | ".join(plain) + " |"


def _where(stages: Sequence[Stage]) -> list[str]:
    """Versions and duration, by the runs' own provenance."""
    results = [r for s in stages for trial in s.trials for r in trial.results.values()]
    if not results:
        return []
    versions = {
        ", ".join(f"{k} {v}" for k, v in r.provenance.get("versions", {}).items()) for r in results
    }
    seconds = sum(float(r.metrics.get("wall_seconds") or 0) for r in results)
    return [
        f"versions: {'; '.join(sorted(versions))}",
        f"{len(results)} runs, {format_duration(seconds)} one after the other",
    ]


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
    points = spec.sampler_of(stage.varied) != "grid" or len(lines) > _MOST_LINES
    if points:
        best = best_of(stage.trials, highest=spec.highest)
        others = [trial for trial in stage.trials if trial is not best]
        lines = {"trials": others, "best": [best] if best else []}
    numbers = all(_is_number(value) for value in setting.ends)
    scores = {
        title or spec.metric: [
            (float(v) if numbers else v, trial.score, trial.deviation)
            for trial in trials
            for v in [trial.values[setting.name]]
        ]
        for title, trials in lines.items()
    }
    ends = [float(value) for value in setting.ends] if numbers else [0.0]
    log = setting.span.log if setting.span else min(ends) > 0 and max(ends) / min(ends) >= 10
    return SettingPanel(f"{head}{setting.name}", setting.name, spec.metric, scores, points, log)


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


def as_result(spec: Sweep, stages: Sequence[Stage], again: str, best: str | None) -> Result:
    """Return everything as a record."""
    trial = best_of(stages[-1].trials, highest=spec.highest) if stages else None
    return Result(
        kind="sweep",
        name=spec.output.name,
        metrics={
            spec.metric: None if trial is None else trial.score,
            "deviation": None if trial is None else trial.deviation,
            "trials": sum(len(stage.trials) for stage in stages),
            "runs": sum(len(t.results) for stage in stages for t in stage.trials),
        },
        details={
            "best": None if trial is None else dict(trial.values),
            "best_command": best,
            "removed_models": removed_models(spec, stages),
            "command": again,
            "seeds": list(spec.seeds),
            "sampler": spec.sampler,
            "highest": spec.highest,
            "stages": [_plain(spec, stage) for stage in stages],
        },
        provenance=provenance(seed=spec.draws, command=shlex.split(again)),
    )


def _plain(spec: Sweep, stage: Stage) -> dict[str, Any]:
    return {
        "varied": [setting.name for setting in stage.varied],
        "fixed": dict(stage.fixed),
        "trials": [
            {
                "values": trial.values,
                "score": trial.score,
                "scores": {str(seed): score for seed, score in trial.scores.items()},
                "notes": {str(seed): note for seed, note in trial.notes.items()},
                "folders": [str(spec.folder(trial.values, seed)) for seed in spec.seeds],
            }
            for trial in stage.trials
        ],
    }


def write(spec: Sweep, stages: Sequence[Stage], again: str, best: str | None) -> list[Path]:
    """Write the files of a sweep; return their paths."""
    contents = (
        picture(spec, stages).svg,
        as_csv(spec, stages).encode(),
        as_markdown(spec, stages, again, best).encode(),
        as_result(spec, stages, again, best).to_json().encode(),
    )
    return write_all(spec.output, dict(zip(TABLES, contents, strict=True)))
