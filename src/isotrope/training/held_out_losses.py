"""Losses of held-out records, which trainings on text log at the steps of the dev score."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isotrope.core.autograd import modes_kept, seeded
from isotrope.core.progress import bar
from isotrope.core.rounding import exact
from isotrope.data.text.repeats import group_mark, hash64, joined_groups
from isotrope.data.text.tokens import TokenStore
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.measures.alignment import alignment
from isotrope.measures.uniformity import uniformity
from isotrope.paradigm import registry
from isotrope.training.settings import TrainSettings
from isotrope.training.text_data import prompts_of
from isotrope.training.text_module import TextModule

MOST_HELD_OUT = 512
"""Largest number of held-out records whose losses are measured."""
_TEMPERATURE = 0.05
_CHUNK = 64  # texts embedded at once
Tokens = Sequence[Sequence[int] | NDArray[Any]]
"""Token ids of some texts."""
Rows = tuple[Tokens, Tokens, list[NDArray[Any]]]
"""Token ids of anchors and of positives, and a list of hashes: of each record's group or anchor."""


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
