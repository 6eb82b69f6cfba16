"""``isotrope.fit``: trains on text from Python; objectives may be objects, data may be in memory.

Objects are written to the settings, and data in memory to files of the run folder. Therefore such
a run can be resumed, diagnosed and repeated like a run of the command line.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from isotrope.core.distributed import of_first, process_group
from isotrope.core.errors import InputError
from isotrope.core.lock import exclusive_lock, is_effectively_empty
from isotrope.core.run_folder import IN_MEMORY
from isotrope.core.spelling import spell
from isotrope.data.sources import is_in_memory, named_datasets, unread_labels, write_records
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.training.early_checks import takes_scores
from isotrope.training.settings import TrainSettings
from isotrope.training.text_options import TextOptions

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from isotrope.training.run import Outcome


def fit(
    files: object,
    *,
    resume: bool = False,
    callbacks: "Sequence[TrainerCallback]" = (),
    **settings: Unpack[TextOptions],
) -> "Outcome":
    """Train a sentence encoder.

    ``help(isotrope.fit)`` lists all keywords; ``isotrope train --help`` explains them. By default
    (``recipe="auto"``), the keywords shown as ``<recipe; papers: X>`` are chosen for your data, and
    printed (not with ``progress=False``); with ``recipe="papers"``, their value is X.

    Args:
        files: Path of a file, a list of paths, or data in memory. ``"user/dataset"`` is the
            training split of a data set on the Hugging Face hub. Data in memory are a list of
            texts, of pairs ``(anchor, positive)`` or of triples ``(anchor, positive, hard
            negative)``. They can also be a table (DataFrame of pandas or polars,
            ``datasets.Dataset``) with the column ``text``, or the columns ``anchor`` and
            ``positive``; the setting ``columns`` gives other names. A single column of a table is
            a list of texts. Data in memory are written to ``output/data-from-python.jsonl``. For
            several data sets, give a dictionary such as ``{"qa": ..., "nli": ...}``, with paths or
            data as values. Each batch comes from one data set.
        resume: Whether to continue an interrupted run, as with ``--resume``.
        callbacks: Callbacks of transformers, for monitoring and for your own loggers. They are
            called between steps, after isotrope's own callbacks.
        settings: ``output="runs/x"`` and any other setting, such as ``max_steps=100``.
            ``objective`` is a name, a class, an object such as ``InfoNCE(temperature=0.1)``, or the
            result of ``modify``. For several data sets, it may be a dictionary from names of data
            sets to objectives.

    Returns:
        The outcome; ``isotrope.load(outcome.output)`` is the trained encoder.

    Raises:
        InputError: The settings, the data, the encoder or the folder cannot be used.
        LostProcess: One of several processes has died.
    """
    from isotrope.training.run import check_devices
    from isotrope.training.text import train

    options: dict[str, Any] = by_name({**settings})
    sources = named_datasets(files)
    memory = {name: data for name, data in sources.items() if is_in_memory(data)}
    shown = _files(sources, dict.fromkeys(memory, "-"))
    checked = TrainSettings.read({"files": shown, **options})
    check_callbacks(callbacks, checked.devices)
    if not memory:
        return train(checked, resume=resume, callbacks=callbacks)
    checked.check_used(memory=True, mixed=len(memory) < len(sources))
    output = Path(checked.output)
    stored = {name: output / f"{IN_MEMORY}{name and f'-{name}'}.jsonl" for name in memory}
    written = {**options, "files": _files(sources, stored), "columns": []}
    tables = {stored[name]: memory[name] for name in stored}
    with process_group(check_devices(checked)), _written(tables, checked, output):
        return train(TrainSettings.read(written), resume=resume, callbacks=callbacks)


def _files(sources: Mapping[str, object], stored: Mapping[str, str | Path]) -> list[str | Path]:
    """Return the files of all data sets, with stored files in place of data in memory."""
    files: list[str | Path] = []
    for name, data in sources.items():
        place = stored.get(name, data)
        paths = [place] if isinstance(place, (str, Path)) else cast("list[str | Path]", place)
        files += [f"{name}={path}" if name else path for path in paths]
    return files


def by_name(options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with a name and values in place of each objective object or class."""
    objective = options.get("objective")
    if isinstance(objective, Mapping):
        return _by_dataset(options, objective)
    if isinstance(objective, type) and issubclass(objective, Objective):
        objective = objective()
    if not isinstance(objective, Objective):
        return options
    separate = [name for name in options if name.startswith("objective") and name != "objective"]
    if separate:
        raise InputError(
            f"give the objective's settings to {type(objective).__name__}(...), not to the keyword "
            f"{separate[0]}, which is only for an objective given by its name"
        )
    learnt = [k for k, v in objective.hyperparameters().items() if getattr(v, "requires_grad", 0)]
    if learnt:
        raise InputError(
            f"set {learnt[0]} of {objective.name} to a number: this training cannot learn it. To "
            "learn it, use ObjectiveLoss in the trainer of sentence-transformers"
        )
    name, values = registry.as_settings(objective)
    home = type(objective).__module__.partition(".")[0]
    if int(options.get("devices") or 1) > 1 and home != "isotrope" and not options.get("plugin"):
        raise _only_here(type(objective), "pass plugin=FILE", options["devices"])
    return {**options, "objective": name, "objective_settings": values}


def check_callbacks(callbacks: "Sequence[TrainerCallback]", devices: int) -> None:
    """Refuse callbacks whose class the processes of ``devices`` cannot import."""
    for kind in (each if isinstance(each, type) else type(each) for each in callbacks):
        if devices > 1 and (kind.__module__ == "__main__" or "<locals>" in kind.__qualname__):
            raise _only_here(kind, "import it", devices)


def _only_here(kind: type, how: str, devices: object) -> InputError:
    return InputError(
        f"write the class {kind.__name__} to a file and {how}: the processes that "
        f"devices={devices} starts cannot import the class otherwise"
    )


def _by_dataset(options: dict[str, Any], objectives: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the objects of a dictionary replaced by names and settings."""
    shared = {k: v for k, v in options.items() if k != "objective"}
    names, settings = [], dict(shared.pop("objective_settings", {}))
    for dataset, objective in objectives.items():
        own = by_name({"devices": options.get("devices"), "objective": objective})
        names.append(f"{dataset}={own['objective']}")
        settings |= {f"{dataset}.{k}": v for k, v in own.get("objective_settings", {}).items()}
    return {**shared, "objective": ",".join(names), "objective_settings": settings}


@contextmanager
def _written(files: Mapping[Path, object], settings: TrainSettings, output: Path) -> Iterator[None]:
    """Write data to files in the run folder; remove these files if no run starts."""
    how: dict[str, Any] = {"groups": settings.groups, "scored": takes_scores(settings)}
    made = [place for place in (output, *output.parents) if not place.exists()]
    wrote: list[Path] = []

    def write() -> None:
        with exclusive_lock(output, f"training in {output}"):
            for file, data in files.items():
                if (reading := write_records(data, settings.columns, file, **how)) is not None:
                    wrote.append(file)
                    if reading.not_read:
                        print(reading, file=sys.stderr)
                    if settings.views == "auto" and (labels := unread_labels(reading)):
                        print(spell(labels), file=sys.stderr)

    try:
        of_first(write)
        yield
    except BaseException:
        if wrote and is_effectively_empty(output):
            for file in wrote:
                file.unlink(missing_ok=True)
            with suppress(OSError):  # stop at the first folder that is not empty
                for place in made:
                    place.rmdir()
        raise


vars(fit)["__signature__"] = TrainSettings.signature(fit)
