"""``--objective.temperature auto``: the temperature that ``isotrope audit`` recommends.

The recommended number replaces ``auto`` before the run begins. config.yaml and the model card have
this number, and all processes and a resumed run use it.
"""

from collections.abc import Mapping
from pathlib import Path

from isotrope.core.distributed import launched_processes
from isotrope.core.errors import InputError, SettingError
from isotrope.data.schemas import Reading
from isotrope.data.sources import named_errors
from isotrope.diagnostics.audit.rows import embed_rows, pair_rows
from isotrope.diagnostics.audit.run import check_negatives, checked_objective
from isotrope.diagnostics.audit.settings import recommend, settings_table
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.paradigm import registry
from isotrope.paradigm.declared import objectives_by_dataset
from isotrope.training.early_checks import AUTO, check_folder
from isotrope.training.progress import warn
from isotrope.training.settings import TrainSettings
from isotrope.training.text_data import records_of
from isotrope.training.text_encoder import encoder_of

_ROWS = 2048  # rows of each data set to embed; more if a batch is larger
_RECORDS = 1_000_000  # records to draw these rows from; with --streaming, those read at a time


def with_temperature(settings: TrainSettings, *, resume: bool) -> TrainSettings:
    """Return the settings with a number for each ``auto`` temperature, and print the reason."""
    datasets = _auto_datasets(settings)
    if not datasets:
        return settings
    _refuse(settings)
    check_folder(Path(settings.output), settings, resume=resume)
    registry.load_plugins(settings.plugin)
    encoder, chosen = encoder_of(settings), dict(settings.objective_settings)
    for name, (objective, values) in datasets.items():
        with named_errors(name):
            value = _recommended(settings, encoder, records_of(settings, name), objective, values)
        chosen[f"{name}.temperature" if name else "temperature"] = value
    return settings.model_copy(update={"objective_settings": _without_auto_values(chosen)})


def without_auto(settings: TrainSettings) -> TrainSettings:
    """Return the settings without ``auto`` temperatures, to check all other settings early."""
    if _auto_datasets(settings):
        _refuse(settings)
    others = _without_auto_values(settings.objective_settings)
    return settings.model_copy(update={"objective_settings": others})


def _auto_datasets(settings: TrainSettings) -> dict[str, tuple[str, dict[str, float | str]]]:
    """Return the objective and its settings for each data set whose temperature is ``auto``."""
    own = objectives_by_dataset(settings.objective, settings.objective_settings, settings.datasets)
    return {
        name: (objective, values)
        for name, (objective, values) in own.items()
        if values.get("temperature") == AUTO
    }


def _without_auto_values(values: Mapping[str, float | str]) -> dict[str, float | str]:
    """Return the settings of objectives except ``auto`` temperatures."""
    return {k: v for k, v in values.items() if v != AUTO or k.rpartition(".")[2] != "temperature"}


def _refuse(settings: TrainSettings) -> None:
    """Refuse settings that the audit does not cover."""
    problem, remedy = "", "give a number in place of auto"
    if settings.head != "none":
        problem = "the audit embeds texts without a head, but this training has a head"
        remedy = f"add `--head none`, or {remedy}"
    elif settings.encoder == "scratch":
        problem = "the audit needs a trained encoder, but `--encoder scratch` has random weights"
    elif launched_processes()[0] > 1:
        problem = "the audit needs a single process, but torchrun has started several"
        remedy = "run `isotrope audit` first, and give the temperature that it recommends"
    if problem:
        raise SettingError(problem, setting="objective.temperature", value=AUTO, remedy=remedy)


def _recommended(
    settings: TrainSettings,
    encoder: SentenceEncoder,
    records: Reading,
    objective_name: str,
    values: Mapping[str, float | str],
) -> float:
    """Return the recommended temperature of an objective for these records; print the reason."""
    objective = checked_objective(objective_name, _without_auto_values(values))
    rows = pair_rows(
        records,
        read=settings.streaming or _RECORDS,
        name="the data",
        views=settings.views,
        most=max(_ROWS, settings.batch_size),
        seed=settings.seed,
    )
    check_negatives(objective, rows.columns)
    embedded = embed_rows(
        encoder,
        rows,
        max_length=settings.max_length,
        prompts=(settings.query_prompt, settings.passage_prompt),
        seed=settings.seed,
    )
    table = settings_table(embedded, objective, batch_size=settings.batch_size, seed=settings.seed)
    of_temperature = (each for each in recommend(table) if each.name == "temperature")
    recommendation = next(of_temperature, None)
    if recommendation is None:
        raise InputError(
            "give a number for `--objective.temperature`: the audit cannot recommend a temperature "
            f"for {objective_name}, because it has no temperature, all temperatures are equally "
            "good, or no anchor has a negative"
        )
    warn(f"temperature {recommendation.value:g} for {objective_name}: {recommendation.reason}")
    return recommendation.value
