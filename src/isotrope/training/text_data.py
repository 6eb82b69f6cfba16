"""The data of a training on text: records, tokenised data sets, batches and held-out records."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isotrope.core.autograd import modes_kept, seeded
from isotrope.core.distributed import rank, rows_of
from isotrope.core.errors import InputError
from isotrope.core.progress import bar
from isotrope.core.rounding import exact
from isotrope.core.run_folder import MANIFEST
from isotrope.data.schemas import Reading, Record
from isotrope.data.sources import named_errors
from isotrope.data.text.batches import Batch, DatasetMixture, collate
from isotrope.data.text.repeats import group_mark, hash64, joined_groups
from isotrope.data.text.store_writer import StoreSettings, build
from isotrope.data.text.streamed import StreamedBatches
from isotrope.data.text.tokens import TokenStore
from isotrope.data.text.views import ALONE, ONE_GROUP, HeldOut, held_out_alone, held_out_together
from isotrope.diagnostics.audit.run import check_negatives
from isotrope.encoders.sentence import SentenceEncoder, check_prompts
from isotrope.evaluation.dev_score import DevMetric, dev_metric_held_out
from isotrope.measures.alignment import alignment
from isotrope.measures.uniformity import uniformity
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.training.early_checks import reading_of
from isotrope.training.progress import warn
from isotrope.training.run import try_objective
from isotrope.training.settings import OF_SCORES, TrainSettings
from isotrope.training.text_module import TextModule

MOST_HELD_OUT = 512
"""Largest number of held-out records whose losses are measured."""
_TEMPERATURE = 0.05
_CHUNK = 64  # texts embedded at once
Tokens = Sequence[Sequence[int] | NDArray[Any]]
"""Token ids of some texts."""
Rows = tuple[Tokens, Tokens, list[NDArray[Any]]]
"""Token ids of anchors and of positives, and a list of hashes: of each record's group or anchor."""


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


def held_out_curves(
    settings: TrainSettings, module: TextModule, stores: Mapping[str, TokenStore]
) -> Callable[[], dict[str, float]] | None:
    """Return a function that calls :func:`held_out_losses`; None if fewer than two are held out.

    The texts of scored pairs may not belong together, so they have no such losses.
    """
    held_out = sum(store.report.held_out for store in stores.values())
    count = min(held_out, sum(map(len, stores.values())), MOST_HELD_OUT)
    if count < 2 or any(store.report.scored and store.columns == 2 for store in stores.values()):
        return None
    every = chain.from_iterable(map(_marked, stores.values()))
    chosen = np.isin(np.arange(held_out), _spread(count, held_out))
    texts, marks = zip(*compress(every, chosen), strict=True)
    prompts = prompts_of(settings, module.encoder)
    records = [[p + text for p, text in zip(prompts, record, strict=False)] for record in texts]
    first, last = (
        module.encoder.tokenize([record[:2][-side] for record in records], settings.max_length)[0]
        for side in (0, 1)
    )
    return functools.partial(
        held_out_losses,
        module.encoder,
        module.head,
        (first, last, [np.array(marks, np.uint64)]),
        _trained_rows(list(stores.values()), count),
        seed=settings.seed,
    )


def _spread(count: int, total: int) -> NDArray[np.int64]:
    """Return ``count`` numbers below ``total``, at equal distances."""
    return np.linspace(0, total, count, endpoint=False).astype(np.int64)


def _marked(store: TokenStore) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield the held-out records, each with a hash of its group or, without groups, its anchor."""
    groups = store.held_out_groups
    for number, record in enumerate(store.held_out()):
        yield record, int(group_mark("", record[0]) if groups is None else groups[number])


def _trained_rows(stores: Sequence[TokenStore], count: int) -> Rows:
    """Return anchors, positives and groups of some records, spread over all data sets."""
    places = _spread(count, sum(map(len, stores)))
    sides: tuple[list[NDArray[Any]], list[NDArray[Any]]] = ([], [])
    labels: list[NDArray[Any]] = []
    start = 0
    for store in stores:
        own = places[(places >= start) & (places < start + len(store))] - start
        for side, rows in enumerate(sides):
            rows += store.rows(own, min(side, store.columns - 1))
        labels += store.group_marks(own) or [store.text_marks(own, 0)]
        start += len(store)
    return *sides, [np.concatenate(labels)]


def held_out_losses(
    encoder: SentenceEncoder, head: nn.Module, held_out: Rows, trained: Rows, *, seed: int
) -> dict[str, float]:
    """Return InfoNCE (temperature 0.05), alignment and uniformity of held-out records.

    InfoNCE is also computed for trained records. Records with a common text or group are not
    negatives of each other. Dropout is on, as in training: without dropout, the two views of a
    single text would be equal. Dropout masks are the same at every call.

    Returns:
        A dict from columns of metrics.csv to numbers.
    """
    objective = registry.build("infonce", {"temperature": _TEMPERATURE})
    anchors, positives = _views(encoder, head, held_out, seed)
    of_trained = objective(*_views(encoder, head, trained, seed), groups=_groups(trained))
    return {
        "trained_contrastive": float(of_trained),
        "held_out_contrastive": float(objective(anchors, positives, groups=_groups(held_out))),
        "held_out_alignment": float(alignment(anchors, positives)),
        "held_out_uniformity": float((uniformity(anchors) + uniformity(positives)) / 2),
    }


def _groups(rows: Rows) -> Tensor:
    """Return the group of each record: those with a common text or group are together."""
    sides = [[hash64(np.asarray(row, np.int64).tobytes()) for row in side] for side in rows[:2]]
    marks = np.array([*sides, *rows[2]], np.uint64)
    return torch.from_numpy(joined_groups(marks.T))


def _views(encoder: SentenceEncoder, head: nn.Module, rows: Rows, seed: int) -> list[Tensor]:
    """Return the embeddings of anchors and positives in training mode, float64."""
    network = nn.ModuleList([encoder, head])
    with modes_kept(network), torch.no_grad(), seeded(seed, encoder.device):
        network.train()
        return [exact(head(_embedded(encoder, side))) for side in rows[:2]]


def _embedded(encoder: SentenceEncoder, side: Tokens) -> Tensor:
    parts = list[Tensor]()
    with bar(len(side), "embed held-out and trained records", "texts") as done:
        for first in range(0, len(side), _CHUNK):
            parts.append(encoder.of_tokens(side[first : first + _CHUNK]))
            done(len(parts[-1]))
    return torch.cat(parts).float()


def watched(
    settings: TrainSettings, watch: DevMetric | None, stores: Mapping[str, TokenStore]
) -> DevMetric | None:
    """Return the dev score, with the number of scored texts that are in the training data."""
    if settings.dev == "auto":
        prompts = (settings.query_prompt, settings.passage_prompt)
        watch = dev_metric_held_out(stores, prompts=prompts, metric=settings.dev_metric)
        settings.check_used(warn, ranked=len(watch.queries))
    elif watch is not None:  # of scored pairs, the first half of the texts are the first sentences
        asked = [(text,) for text in watch.queries or watch.texts[: len(watch.texts) // 2]]
        met = np.any([store.trained_on(asked) for store in stores.values()], axis=0)
        watch = replace(watch, records=len(asked), trained_on=int(met.sum()))
    if watch is not None and settings.streaming is not None:
        return replace(watch, trained_on=None)  # later records are not read yet
    return watch


def seen_in_training(watch: DevMetric, settings: TrainSettings, *, known: bool) -> str:
    """Return the warning that some scored texts are in the training data."""
    counts = f"{watch.trained_on:,} of {watch.records:,}"
    if settings.dev == "auto" and known:
        return (
            "each answer belongs to several questions, so only questions are held out. For the dev "
            "score, all answers are ranked, including answers in the training data"
        )
    if settings.dev == "auto":
        return (
            "the dev score can be higher than that of new texts: training records share a text, "
            f"such as the answer, with {counts} held-out records"
        )
    what, surely = ("queries", "is") if watch.queries else ("first sentences", "can be")
    return (
        f"warning: remove the {what} of {settings.dev} from the training data, which "
        f"contain {counts} (case and most punctuation ignored), so the dev score {surely} too high"
    )
