"""Writes the results of a sweep: a CSV table, a picture, and JSON with the best command."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from isotrope.core.files import write_all
from isotrope.core.legible import csv_text
from isotrope.core.result import Result, provenance
from isotrope.core.run_folder import RunFolder
from isotrope.reports.plots import slices
from isotrope.sweeps.spec import RUNS, TABLES, Sweep
from isotrope.sweeps.study import SweepStudy
from isotrope.sweeps.trials import Trial, best_of, compare, ranked


def table(spec: Sweep, trials: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the printed table, the best trial first."""
    names = [setting.name for setting in spec.varied]
    order = ranked(trials, highest=spec.highest)
    order += [trial for trial in trials if trial not in order]
    rows = [
        [str(place), *(t.values[name] for name in names), _score(t), _runs(spec, t)]
        for place, t in enumerate(order, start=1)
    ]
    return ["", *names, spec.metric, "seeds"], rows


def _score(trial: Trial) -> str:
    if trial.score is None:
        missing = f"no {trial.metric}" if trial.results else "not run"
        return next(iter(trial.notes.values()), missing)
    more = "" if trial.deviation is None else f" ± {trial.deviation:.2g}"
    return f"{trial.score:.5g}{more}"


def _runs(spec: Sweep, trial: Trial) -> str:
    done, seeds = len(trial.scores), len(spec.chosen.seeds)
    return str(done) if done == seeds else f"{done} of {seeds}"


class SweepVerdict(NamedTuple):
    """The best trial, or None if noise hides which it is; and a sentence on the noise."""

    best: Trial | None
    noise: str


def verdict(spec: Sweep, trials: Sequence[Trial]) -> SweepVerdict:
    """Decide which trial is the best; without any score, the sentence is empty."""
    best = best_of(trials, highest=spec.highest)
    if best is None:
        return SweepVerdict(None, "")
    compared = compare(trials, highest=spec.highest)
    if compared.noise == math.inf:
        noise = "wait for more runs: noise is not known from fewer than two common seeds"
    elif len(best.scores) == 1:
        noise = "give several `--seeds`: with one, noise is not known"
    else:
        noise = f"differences up to {compared.noise:.2g} are noise"
    if not compared.equals:
        what = f"no trial is better than the model before training, {compared.start:.5g}"
        at_best = f"({spec.metric} {best.score:.5g} at best)"
        return SweepVerdict(None, f"no difference beyond noise: {what} {at_best}; {noise}")
    if len(compared.equals) == 1:
        return SweepVerdict(best, noise)
    named = compared.equals[:5]
    names = "; ".join(" ".join(f"{k}={v}" for k, v in trial.values.items()) for trial in named)
    if len(compared.equals) > len(named):
        names += f"; {len(compared.equals) - len(named)} more"
    return SweepVerdict(None, f"no difference beyond noise between {names}; {noise}")


def best_command(spec: Sweep, trials: Sequence[Trial]) -> str | None:
    """Return the command line that trains with the best values; None if noise hides them."""
    best = verdict(spec, trials).best
    if best is None:
        return None
    verb = next(verb for verb, settings in RUNS.items() if settings is spec.settings)
    config = RunFolder(spec.folder(best.values, spec.chosen.seeds[0])).config
    output = str(spec.chosen.output / "best")
    words = ["isotrope", verb, "--config", str(config), "--progress", "--output", output]
    return shlex.join(words)


def as_csv(spec: Sweep, trials: Sequence[Trial]) -> str:
    """Return a CSV table with a row for each trial: values, score, score of each seed, folder."""
    seeds = spec.chosen.seeds
    rows: list[list[object]] = []
    for trial in trials:
        seconds = [r.metrics.get("seconds") for r in trial.results.values()]
        measured = [float(s) for s in seconds if isinstance(s, int | float)]
        scores = [trial.score, trial.deviation, *(trial.scores.get(seed) for seed in seeds)]
        folder = spec.folder(trial.values, seeds[0]).relative_to(spec.chosen.output)
        scores += [sum(measured) if measured else None]
        numbers = ["" if score is None else f"{score:.8g}" for score in scores]
        note = "; ".join(dict.fromkeys(trial.notes.values()))
        rows.append([*trial.values.values(), *numbers, folder, note])
    names = [setting.name for setting in spec.varied]
    of_seeds = [f"seed {seed}" for seed in seeds]
    header = [*names, spec.metric, "deviation", *of_seeds, "seconds", "folder", "note"]
    return csv_text(header, rows)


def as_result(spec: Sweep, trials: Sequence[Trial]) -> Result:
    """Return the whole sweep as a Result."""
    top, decided = best_of(trials, highest=spec.highest), verdict(spec, trials)
    return Result(
        kind="sweep",
        name=spec.chosen.output.name,
        metrics={
            spec.metric: None if top is None else top.score,
            "deviation": None if top is None else top.deviation,
            "trials": len(trials),
            "runs": sum(len(trial.results) for trial in trials),
        },
        details={
            "best": None if decided.best is None else decided.best.values,
            "best_command": best_command(spec, trials),
            "noise": decided.noise,
            "seeds": spec.chosen.seeds,
            "sampler": spec.sampler,
            "highest": spec.highest,
            "trials": [
                {
                    "values": trial.values,
                    "score": trial.score,
                    "scores": {str(seed): score for seed, score in trial.scores.items()},
                    "notes": {str(seed): note for seed, note in trial.notes.items()},
                    "folders": [str(spec.folder(trial.values, s)) for s in spec.chosen.seeds],
                }
                for trial in trials
            ],
        },
        provenance=provenance(seed=spec.chosen.draws),
    )


def write(spec: Sweep, trials: Sequence[Trial]) -> list[Path]:
    """Write the files of a sweep; return their paths."""
    contents = (
        slices(SweepStudy(spec).study, spec.metric),
        as_csv(spec, trials).encode(),
        as_result(spec, trials).to_json().encode(),
    )
    return write_all(spec.chosen.output, dict(zip(TABLES, contents, strict=True)))
