"""The function ``isotrope.sweep``: a sweep whose settings are Python values."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from isotrope.core.errors import InputError, needs_extra
from isotrope.core.result import Result


def sweep(
    data: str | Path | Sequence[str | Path],
    *,
    vary: Mapping[str, Sequence[Any] | str] | Sequence[Mapping[str, Sequence[Any] | str]],
    output: str | Path,
    images: bool = False,
    sampler: Literal["grid", "random", "tpe"] | None = None,
    trials: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    metric: str | None = None,
    highest: bool | None = None,
    jobs: int | None = None,
    draws: int = 0,
    keep: Literal["all", "best"] = "all",
    report: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> Result:
    """Train with many settings, each with several seeds, and find the best.

    The same call continues a stopped sweep and repeats no training. Table, picture and result are
    written to ``output``, each run to a folder in ``output/runs``.

    Args:
        data: Path or name of the data, as for ``isotrope.fit`` or ``isotrope.fit_images``.
        vary: The values to try for each setting, ``{"learning_rate": [1e-5, 3e-5],
            "objective.temperature": "0.03..0.1"}``, where a text is a range of ``isotrope sweep``.
            Several dictionaries are stages; each continues with the best of the one before.
        output: Folder of the sweep.
        images: Train on images.
        sampler: ``grid``, ``random`` or ``tpe`` (Optuna's); None means a grid for listed values and
            ``random`` if there is a range.
        trials: Number of settings that random and tpe try [20].
        seeds: Seeds to train every setting with.
        metric: The number of a run's result to compare by [``dev_best``; ``knn_final`` for images].
        highest: Whether higher is better; None is True, except for losses and seconds.
        jobs: Runs at a time [one for each GPU, or 1].
        draws: Seed of random and tpe.
        keep: Models to keep on disk.
        report: Function that receives a line for each stage and each finished run.
        settings: Settings of every run, as for ``isotrope.fit``.

    Returns:
        A Result of kind ``sweep``: ``details["best"]`` are the best values,
        ``details["best_command"]`` is the command that trains with them.

    Raises:
        InputError: A setting or the data are wrong (before anything is trained), or no trial has a
            score.
        MissingExtra: optuna or matplotlib is not installed.
    """
    with needs_extra("sweep", "optuna", "matplotlib"):
        from isotrope.sweeps.plan import plan
        from isotrope.sweeps.spec import SweepSettings, run_settings
        from isotrope.sweeps.sweep import sweep as run
        from isotrope.sweeps.tables import as_result, best_command, write
    from isotrope.training.fit_text import by_name

    positional, verb = ("data", "train-images") if images else ("files", "train")
    base = by_name({positional: _paths(data), **settings})
    chosen: dict[str, Any] = {
        "stages": [_stage(values) for values in ([vary] if isinstance(vary, Mapping) else vary)],
        "output": output,
        "sampler": sampler,
        "trials": trials,
        "seeds": list(seeds),
        "metric": metric,
        "goal": None if highest is None else "max" if highest else "min",
        "jobs": jobs,
        "draws": draws,
        "keep": keep,
    }
    spec = plan(run_settings(verb), base, SweepSettings.read(chosen))
    stages = run(spec, report)
    best = best_command(spec, stages, positional)
    failures = [why for stage in stages for trial in stage.trials for why in trial.failures]
    if best is None:
        raise InputError(
            f"no trial of stage {len(stages)} has a score{'; ' * bool(failures)}"
            f"{''.join(failures[:1])}"
        )
    again = _command(images, base, positional, chosen["stages"], spec.output)
    write(spec, stages, again, best)
    return as_result(spec, stages, again, best)


def _paths(data: str | Path | Sequence[str | Path]) -> str | list[str]:
    return str(data) if isinstance(data, (str, Path)) else [str(path) for path in data]


def _stage(vary: Mapping[str, Sequence[Any] | str]) -> list[str]:
    """Return what a stage varies, as ``--vary`` takes it."""
    words = []
    for name, values in vary.items():
        spelled = name if "." in name else name.replace("_", "-")
        listed = values if isinstance(values, str) else ",".join(map(_word, values))
        words.append(f"{spelled}={listed}")
    return words


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _command(
    images: bool, base: Mapping[str, Any], positional: str, stages: list[list[str]], output: Path
) -> str:
    """Return the command line that does the same, but for what a sweep has by default."""
    paths = base[positional]
    words = ["isotrope", "sweep", "train-images" if images else "train"]
    words += paths if isinstance(paths, list) else [paths]
    for name, value in base.items():
        if name == positional:
            continue
        if isinstance(value, Mapping):
            prefix = name.removesuffix("_settings")
            words += [w for k, v in value.items() for w in (f"--{prefix}.{k}", _word(v))]
        else:
            flag = f"--{name.replace('_', '-')}"
            many = value if isinstance(value, (list, tuple)) else [value]
            words += [word for item in many for word in (flag, _word(item))]
    for place, stage in enumerate(stages):
        words += ["--then"] * (place > 0)
        words += [word for item in stage for word in ("--vary", item)]
    return shlex.join([*words, "--output", str(output)])
