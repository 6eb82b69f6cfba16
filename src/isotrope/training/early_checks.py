"""Checks the folder, files and names of a run before heavy libraries are imported."""

import os
from pathlib import Path

from isotrope.core.documents import check_file, read_yaml
from isotrope.core.errors import CannotResume, InputError
from isotrope.core.lock import exclusive_lock, is_effectively_empty
from isotrope.core.result import Result
from isotrope.core.run_folder import LOCK, RunFolder
from isotrope.core.spelling import named
from isotrope.data.records import Record
from isotrope.data.schemas import Reading
from isotrope.data.sources import named_errors, read
from isotrope.data.table import check_known, is_hub_name
from isotrope.data.text.views import resolve as resolve_views
from isotrope.encoders.names import resolve
from isotrope.paradigm.declared import check_declared, objectives_by_dataset
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import CHOSEN, LIMITED, OF_SCORES, TrainSettings

AUTO = "auto"
"""Value of a temperature for which the audit's recommendation is used."""
OBJECTIVE = "ntxent"
"""The objective of ``--recipe auto`` for pairs."""


def recipe_applies(settings: TrainSettings) -> bool:
    """Return whether ``--recipe auto`` is set and can choose settings, or has chosen them."""
    given = settings.model_fields_set
    objectives, losses = [OBJECTIVE], list[str | None]([None])
    if all(getattr(settings, name) is None for name in CHOSEN - given):  # as in config.yaml
        objectives.append(TrainSettings.model_fields["objective"].default)
        losses.append(OF_SCORES[0])
    return (
        settings.recipe == "auto"
        and settings.encoder != "scratch"
        and ("objective" not in given or settings.objective in objectives)
        and settings.loss in losses
        and settings.objective_settings.keys() <= {"temperature"}
        and settings.views != "adjacent"
        and settings.streaming is None
        and settings.lora is None
        and len(settings.datasets) == 1
    )


def chosen_later(settings: RunSettings) -> frozenset[str]:
    """Return the names of the settings that ``--recipe auto`` will choose; empty without it."""
    if not isinstance(settings, TrainSettings) or not recipe_applies(settings):
        return frozenset()
    left = CHOSEN - settings.model_fields_set
    some = settings.minutes or any(getattr(settings, name) is not None for name in left)
    return left if some else frozenset()


def takes_scores(settings: TrainSettings) -> bool:
    """Return whether scored pairs can be read: the given or automatic loss learns from scores."""
    if settings.loss is not None or "objective" in settings.model_fields_set:
        return settings.loss in OF_SCORES
    single = len(settings.datasets) == 1 and settings.views != "adjacent"
    return settings.recipe == "auto" and single


def first_record(settings: TrainSettings, reading: Reading) -> Record:
    """Return the first record; refuse views and, of scored pairs, settings that do not fit it."""
    record = next(iter(reading))
    resolve_views(settings.views, record)
    if settings.loss is None and reading.kind == "scored pairs":
        settings.check_used(lambda line: None, loss=f"{OF_SCORES[0]}, the loss of scored pairs,")
    return record


def reading_of(settings: TrainSettings, files: list[str]) -> Reading:
    """Return the reader of the training records in some files."""
    return read(
        files,
        columns=settings.columns,
        groups=settings.groups,
        streaming=settings.streaming is not None,
        scored=takes_scores(settings),
        tabs=settings.loss in OF_SCORES,
    )


def check_not_taken(output: Path) -> None:
    """Raise an error if another process is training in the output folder. No data are read yet."""
    if "RANK" not in os.environ and (output / LOCK).exists():
        with exclusive_lock(output, f"training in {output}"):
            pass


def as_begun(settings: TrainSettings) -> TrainSettings:
    """Return the settings of a resumed run, with the values that were chosen when it began."""
    config, own = RunFolder(settings.output).config, settings.objective_settings
    chosen: frozenset[str] = frozenset()
    if recipe_applies(settings):
        limited = LIMITED if settings.minutes else frozenset()
        chosen = CHOSEN - settings.model_fields_set | limited
    elif settings.loss is None and takes_scores(settings):
        chosen = frozenset({"loss"})
    if not (chosen or AUTO in own.values()) or not config.is_file():
        return settings
    begun = TrainSettings.read(read_yaml(config), source=str(config))
    update: dict[str, object] = {}
    if begun.recipe == "auto":
        update = {name: getattr(begun, name) for name in chosen}
    if AUTO in own.values() or "objective" in update:
        old = begun.objective_settings.items()
        values = {key: value for key, value in old if key.rpartition(".")[2] == "temperature"}
        values |= {key: value for key, value in own.items() if value != AUTO}
        update["objective_settings"] = values
    return settings.model_copy(update=update)


def check_given(settings: RunSettings) -> None:
    """Refuse settings that have no effect; with ``--recipe auto``, they are checked later."""
    if not (isinstance(settings, TrainSettings) and recipe_applies(settings)):
        settings.check_used(lambda line: None)


def check_early(settings: RunSettings, *, resume: bool) -> None:
    """Check the folder, files and names of a run, without torch and before the full checks."""
    output = Path(settings.output)
    # a locked folder may be in use by another process of this run
    is_free = "RANK" not in os.environ and not (output / LOCK).exists()
    if is_free and check_folder(output, settings, resume=resume) is not None:
        return  # the run is finished
    check_given(settings)
    for plugin in settings.plugin:
        check_file(Path(plugin))
    objective = getattr(settings, "objective", None)
    if objective is not None and not settings.plugin:
        names = settings.datasets if isinstance(settings, TrainSettings) else [""]
        for own in objectives_by_dataset(objective, settings.objective_settings, names).values():
            check_declared(*own)
    if isinstance(settings, TrainSettings):
        _check_inputs(settings)


def _check_inputs(settings: TrainSettings) -> None:
    """Check the data, the dev set and the encoder of a training on text."""
    for name, files in settings.datasets.items():
        local = [file for file in files if not is_hub_name(Path(file))]
        with named_errors(name):
            for file in files:
                if file not in local:
                    check_known(Path(file))
            if local:
                first_record(settings, reading_of(settings, local))
    if settings.dev not in (None, "auto") and not Path(str(settings.dev)).is_dir():
        check_file(Path(str(settings.dev)))
    if settings.encoder != "scratch":
        resolve(settings.encoder)


def check_folder(output: Path, settings: RunSettings, *, resume: bool) -> Result | None:
    """Refuse a folder that cannot be used; return the result of a finished run, otherwise None."""
    if output.exists() and not output.is_dir():
        raise InputError(f"give a folder as output: {output} is a file")
    for folder in map(Path, settings.inputs):
        if folder.is_dir() and output.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"choose an output folder outside the data: {output} is in the data folder "
                f"{folder}, so the run would train on its own files"
            )
    RunFolder(output).check()
    if is_effectively_empty(output):
        return None
    config = RunFolder(output).config
    if not resume:
        if not RunFolder(output).is_begun:
            raise InputError(f"choose another output folder: {output} has files, but no run")
        more = f"add `--resume` to continue the run in {output}, or choose another output folder"
        done = f"choose another output folder: the run in {output} is finished"
        raise InputError(done if RunFolder(output).result.is_file() else more)
    if not config.is_file():
        raise CannotResume(f"choose the folder of a run: {output} has no config.yaml to resume")
    before = type(settings).read(read_yaml(config), source=str(config))
    for name in type(settings).model_fields:
        old, new = getattr(before, name), getattr(settings, name)
        if name not in settings.free and old != new:
            raise CannotResume(
                f"cannot resume {output}: {named(name)} was {_shown(old)} there, and is "
                f"{_shown(new)} now",
                remedy="repeat the command that began the run, or choose another output folder",
            )
    if RunFolder(output).result.is_file():
        return Result.load(RunFolder(output).result)
    return None


def _shown(value: object) -> str:
    """Return the value of a setting, which may not be set."""
    return "not set" if value is None else repr(value)
