"""The data of a training on text: records, tokenised data sets and batches."""

import functools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from isotrope.core.distributed import rank, rows_of
from isotrope.core.errors import InputError
from isotrope.core.progress import bar
from isotrope.core.run_folder import MANIFEST
from isotrope.data.records import Record
from isotrope.data.schemas import Reading
from isotrope.data.sources import named_errors
from isotrope.data.text.batches import Batch, DatasetMixture, collate
from isotrope.data.text.store_writer import StoreSettings, build
from isotrope.data.text.streamed import StreamedBatches
from isotrope.data.text.tokens import TokenStore
from isotrope.data.text.views import ALONE, ONE_GROUP, HeldOut, held_out_alone, held_out_together
from isotrope.diagnostics.audit.run import check_negatives
from isotrope.encoders.sentence import SentenceEncoder, check_prompts
from isotrope.paradigm.objective import Objective
from isotrope.training.early_checks import reading_of
from isotrope.training.progress import warn
from isotrope.training.run import try_objective
from isotrope.training.settings import OF_SCORES, TrainSettings


def records_of(settings: TrainSettings, name: str) -> Reading:
    """Return the reader of a data set's records."""
    reading = reading_of(settings, settings.datasets[name])
    reading.holds_out = held_out_alone(settings.held_out, settings.seed)
    return reading


def held_out_of(settings: TrainSettings, name: str) -> HeldOut:
    """Return which pairs to hold out together; none if pairs need not stay together."""
    if not settings.held_out or settings.streaming is not None or settings.views == "adjacent":
        return ALONE
    reading = records_of(settings, name)
    next(iter(reading))  # the first record has the kind of all
    if reading.kind == "labelled texts":  # their pairs are apart already
        return ALONE
    return held_out_together(reading, settings.held_out, settings.seed)


def batches_of(
    settings: TrainSettings, encoder: SentenceEncoder, folder: Path
) -> DatasetMixture | StreamedBatches:
    """Return the batches of a run, with tokens stored in a folder."""
    if settings.streaming is None:
        stores = {
            name: store_of(settings, encoder, folder / name, records_of(settings, name), name)
            for name in settings.datasets
        }
        return DatasetMixture(stores, settings.batch_size, settings.sampling, settings.seed)
    (name,) = settings.datasets
    return StreamedBatches(
        folder,
        functools.partial(records_of, settings, name),
        functools.partial(store_of, settings, encoder, name=name),
        size=settings.streaming,
        batch_size=settings.batch_size,
        seed=settings.seed,
        name=name,
    )


def store_of(
    settings: TrainSettings,
    encoder: SentenceEncoder,
    folder: Path,
    records: Iterable[Record],
    name: str = "",
) -> TokenStore:
    """Tokenise a data set and store the tokens in ``folder``; a resumed run opens stored tokens."""
    if (folder / MANIFEST).is_file():
        try:
            return TokenStore.open(folder, verify=rank() == 0)
        except InputError as error:
            if rank() > 0:
                raise
            warn(f"warning: reading the text again: {folder} is not usable ({error.__cause__})")
    if rank() > 0:
        raise InputError(
            f"give an `--output` on a file system that all machines share: process {rank()} cannot "
            f"see {folder}, which the first process has written"
        )
    title = f"read {name}".strip()
    with bar(None, title, "records", show=settings.progress) as done, named_errors(name):
        return build(
            folder,
            records,
            encoder.tokenize,
            StoreSettings(
                vocabulary=len(encoder.tokenizer),
                max_length=settings.max_length,
                prompts=prompts_of(settings, encoder),
                holdout=settings.held_out,
                seed=settings.seed,
                views=settings.views,
                grouped=settings.groups is not None,
                scored=settings.loss in OF_SCORES,
            ),
            held=held_out_of(settings, name),
            progress=done,
        )


def prompts_of(settings: TrainSettings, encoder: SentenceEncoder) -> tuple[str, str]:
    """Return a tuple of the prompts of anchors and of positives, as set or as in the model."""
    check_prompts(encoder, settings.query_prompt, settings.passage_prompt)
    return settings.query_prompt or encoder.prompt, settings.passage_prompt or encoder.prompt


def batch_at(
    settings: TrainSettings,
    encoder: SentenceEncoder,
    batches: DatasetMixture | StreamedBatches,
    step: int,
) -> Batch:
    """Return this process's part of the batch of a step."""
    dataset, number, indices = batches.at(step)
    batch = collate(
        batches.stores[dataset],
        indices,
        pad_id=encoder.tokenizer.pad_token_id or 0,
        part=rows_of(len(indices)),
    )
    return replace(batch, dataset=dataset, number=number)


def check_store(objective: Objective, store: TokenStore) -> None:
    """Refuse hard negatives that the objective cannot use, and data with a single group."""
    check_negatives(objective, store.columns)
    if store.one_group and store.columns < 3:
        raise InputError(ONE_GROUP.format(len(store)))
    try_objective(objective, negatives=store.columns == 3)
