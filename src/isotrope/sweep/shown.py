"""Shown: a sweep as a table, as a page and as a record, with the command line of the best."""

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isotrope.core.durations import lasting
from isotrope.core.files import replacing
from isotrope.core.result import Result, provenance
from isotrope.sweep.asked import Sweep
from isotrope.sweep.command import command
from isotrope.sweep.trials import Stage, Trial, best_of

__all__ = ["as_csv", "as_markdown", "as_result", "best_command", "table", "write"]


def table(
    asked: Sweep, stage: Stage, *, most: int | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a stage, the best first."""
    names = _names([stage])
    sign = -1 if asked.highest else 1
    order = sorted(
        stage.trials,
        key=lambda t: (t.score is None, 0.0 if t.score is None else sign * t.score, t.number),
    )
    header = ["", *names, asked.metric, "seeds"]
    rows = [
        [str(place), *(t.values[name] for name in names), _score(t), _runs(asked, t)]
        for place, t in enumerate(order, start=1)
    ]
    return header, rows


def _names(stages: Sequence[Stage]) -> list[str]:
    """Of everything that is varied, and was before."""
    names = [name for s in stages for name in (*s.fixed, *(one.name for one in s.varied))]
    return list(dict.fromkeys(names))


def _score(trial: Trial) -> str:
    if trial.score is None:
        return next(iter(trial.notes.values()), "not run")
    more = "" if trial.deviation is None else f" ± {trial.deviation:.2g}"
    return f"{trial.score:.5g}{more}"


def _runs(asked: Sweep, trial: Trial) -> str:
    done = len(trial.scores)
    return str(done) if done == len(asked.seeds) else f"{done} of {len(asked.seeds)}"


def best_command(asked: Sweep, stages: Sequence[Stage], positional: str) -> str | None:
    """Return the command line of the best setting; None where there is none."""
    best = best_of(stages[-1].trials, highest=asked.highest) if stages else None
    if best is None:
        return None
    settings = asked.run(best.values, asked.seeds[0])
    again = settings.model_copy(update={"output": str(asked.output / "best")})
    return command(again, positional)


def as_csv(asked: Sweep, stages: Sequence[Stage]) -> str:
    """Return one row for each trial: its values, its score, that of every seed, its folders."""
    names = _names(stages)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    seeds = [f"seed {seed}" for seed in asked.seeds]
    lines.writerow(
        ["stage", "trial", *names, asked.metric, "deviation", *seeds, "seconds", "folder", "note"]
    )
    for place, stage in enumerate(stages, start=1):
        for trial in stage.trials:
            seconds = [r.metrics.get("seconds") for r in trial.results.values()]
            known = [float(s) for s in seconds if isinstance(s, int | float)]
            folder = asked.folder(trial.values, asked.seeds[0]).relative_to(asked.output)
            lines.writerow(
                [
                    place,
                    trial.number,
                    *(trial.values.get(name, "") for name in names),
                    _cell(trial.score),
                    _cell(trial.deviation),
                    *(_cell(trial.scores.get(seed)) for seed in asked.seeds),
                    _cell(sum(known) if known else None),
                    folder,
                    "; ".join(dict.fromkeys(trial.notes.values())),
                ]
            )
    return text.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"


def as_markdown(
    asked: Sweep, stages: Sequence[Stage], again: str, best: str | None, *, drawn: bool
) -> str:
    """Return a page: the tables, best first, the picture, what is best, and where it comes from.

    Args:
        asked: the sweep.
        stages: what they came to.
        again: the command line of the sweep.
        best: that of the best setting.
        drawn: whether there is a picture beside it.
    """
    goal = "highest" if asked.highest else "lowest"
    parts = [f"# Sweep of {', '.join(_names(stages))}: {goal} {asked.metric}"]
    for place, stage in enumerate(stages, start=1):
        header, rows = table(asked, stage)
        if len(asked.stages) > 1:
            fixed = ", ".join(f"{name} = {value}" for name, value in stage.fixed.items())
            parts.append(f"**Stage {place}**" + (f", with {fixed}" if fixed else ""))
        lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
        parts.append("\n".join(lines))
    if drawn:
        parts.append("![scores by setting](sweep.svg)")
    if best is not None:
        parts.append(f"The best:\n\n```\n{best}\n```")
    seeds = ", ".join(map(str, asked.seeds))
    how = {"grid": "every combination", "random": "drawn", "optuna": "chosen by Optuna's TPE"}
    notes = [f"- settings: {how[asked.sampler]}; seeds {seeds}"]
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
        f"{len(results)} runs, {lasting(seconds)} one after the other",
    ]


def as_result(asked: Sweep, stages: Sequence[Stage], again: str, best: str | None) -> Result:
    """Return everything as a record."""
    trial = best_of(stages[-1].trials, highest=asked.highest) if stages else None
    return Result(
        kind="sweep",
        name=asked.output.name,
        metrics={
            asked.metric: None if trial is None else trial.score,
            "deviation": None if trial is None else trial.deviation,
            "trials": sum(len(stage.trials) for stage in stages),
            "runs": sum(len(t.results) for stage in stages for t in stage.trials),
        },
        details={
            "best": None if trial is None else dict(trial.values),
            "best_command": best,
            "command": again,
            "seeds": list(asked.seeds),
            "sampler": asked.sampler,
            "highest": asked.highest,
            "stages": [_plain(asked, stage) for stage in stages],
        },
        provenance=provenance(seed=asked.draws, command=shlex.split(again)),
    )


def _plain(asked: Sweep, stage: Stage) -> dict[str, Any]:
    return {
        "varied": [one.name for one in stage.varied],
        "fixed": dict(stage.fixed),
        "trials": [
            {
                "values": trial.values,
                "score": trial.score,
                "scores": {str(seed): score for seed, score in trial.scores.items()},
                "notes": {str(seed): note for seed, note in trial.notes.items()},
                "folders": [str(asked.folder(trial.values, seed)) for seed in asked.seeds],
            }
            for trial in stage.trials
        ],
    }


def write(
    asked: Sweep, stages: Sequence[Stage], again: str, best: str | None
) -> tuple[list[Path], bool]:
    """Write sweep.csv, sweep.md, sweep.json and, where there is matplotlib, sweep.svg.

    Returns:
        The paths, and whether there is a picture.
    """
    contents: dict[str, bytes] = {}
    try:
        from isotrope.sweep.drawn import picture
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
    else:
        contents["sweep.svg"] = picture(asked, stages).svg
    contents["sweep.csv"] = as_csv(asked, stages).encode()
    drawn = "sweep.svg" in contents
    contents["sweep.md"] = as_markdown(asked, stages, again, best, drawn=drawn).encode()
    contents["sweep.json"] = as_result(asked, stages, again, best).to_json().encode()
    for name, content in contents.items():
        with replacing(asked.output / name) as temporary:
            temporary.write_bytes(content)
    return [asked.output / name for name in contents], drawn
