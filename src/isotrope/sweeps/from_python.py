"""The function ``isotrope.sweep``, which takes the settings of a sweep as Python values."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrope.core.errors import InputError, needs_extra
from isotrope.core.result import Result


def sweep(
    data: str | Path | Sequence[str | Path],
    *,
    vary: Mapping[str, Sequence[Any] | str],
    output: str | Path,
    images: bool = False,
    report: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> Result:
    """Train with many values of some settings, each with several seeds, and find the best.

    The same call continues a stopped sweep and repeats no training. The table, the picture and the
    result are written to ``output``, and each run to a folder in ``output/runs``.

    Args:
        data: Path or name of the data, as for ``isotrope.fit`` or ``isotrope.fit_images``.
        vary: Values to try for each setting: ``{"learning_rate": [1e-5, 3e-5],
            "objective.temperature": "0.03..0.1"}``. A string is read as by ``--vary``.
        output: Folder of the sweep.
        images: Whether to train on images instead of text.
        report: Function that receives a line of text for each finished run.
        settings: Settings of the sweep as for ``isotrope sweep`` (``seeds=[0, 1, 2]``,
            ``sampler="tpe"``, ``trials=20``, ``metric="dev_best"``, ``goal="max"``, ``jobs=1``,
            ``draws=0``, ``keep="best"``), and settings of all runs as for ``isotrope.fit``.

    Returns:
        A Result of kind ``sweep``. Its ``details["best"]`` has the best values, and
        ``details["best_command"]`` the command that trains with them.

    Raises:
        InputError: A setting or the data are wrong (found before the first training), or no trial
            has a score.
        MissingExtra: optuna or matplotlib is not installed.
    """
    with needs_extra("sweep", "optuna", "matplotlib"):
        from isotrope.sweeps.spec import RUNS, SweepSettings, plan
        from isotrope.sweeps.sweep import sweep as run
        from isotrope.sweeps.tables import as_result, write
    from isotrope.training.fit_text import by_name

    runs = RUNS["train-images" if images else "train"]
    own = {name: settings.pop(name) for name in SweepSettings.model_fields if name in settings}
    chosen = SweepSettings.read({**own, "vary": _words(vary), "output": output})
    paths = str(data) if isinstance(data, (str, Path)) else [str(path) for path in data]
    positional = next(iter(runs.positionals()))
    spec = plan(runs, by_name({positional: paths, **settings}), chosen)
    trials = run(spec, report)
    result = as_result(spec, trials)
    if result.details["best"] is None:
        failures = [why for trial in trials for why in trial.failures]
        raise InputError(f"no trial has a score{'; ' * bool(failures)}{''.join(failures[:1])}")
    write(spec, trials)
    return result


def _words(vary: Mapping[str, Sequence[Any] | str]) -> list[str]:
    """Return the settings to vary in the format of ``--vary``."""
    words = []
    for name, values in vary.items():
        spelled = name if "." in name else name.replace("_", "-")
        listed = values if isinstance(values, str) else ",".join(map(_word, values))
        words.append(f"{spelled}={listed}")
    return words


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
