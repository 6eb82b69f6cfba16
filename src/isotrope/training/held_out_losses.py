"""Losses of held-out records, which trainings on text log at the steps of the dev score."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isotrope.core.autograd import modes_kept, seeded
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
Tokens = Sequence[Sequence[int] | NDArray[Any]]
"""Token ids of some texts."""
Places = NDArray[np.int64]


class TokenRows(NamedTuple):
    """Token ids of n records, and a hash of each record's group or, without groups, its anchor."""

    anchors: Tokens
    positives: Tokens
    marks: NDArray[np.uint64]


def held_out_curves(
    settings: TrainSettings, module: TextModule, stores: Mapping[str, TokenStore]
) -> Callable[[], dict[str, float]] | None:
    """Return a function that calls :func:`held_out_losses`; None if fewer than two are held out.

    The records are spread over all data sets. At most :data:`MOST_HELD_OUT` are measured, and as
    many trained records. The texts of scored pairs may not belong together, so they have no such
    losses.
    """
    held_out = sum(store.report.held_out for store in stores.values())
    trained = sum(map(len, stores.values()))
    count = min(held_out, trained, MOST_HELD_OUT)
    if count < 2 or any(store.report.scored and store.columns == 2 for store in stores.values()):
        return None
    return functools.partial(
        held_out_losses,
        module.encoder,
        module.head,
        _held_out_rows(settings, module.encoder, stores.values(), _spread(count, held_out)),
        _trained_rows(stores.values(), _spread(count, trained)),
        seed=settings.seed,
    )


def _spread(count: int, total: int) -> Places:
    """Return ``count`` numbers below ``total``, at equal distances."""
    return np.linspace(0, total, count, endpoint=False).astype(np.int64)


def _held_out_rows(
    settings: TrainSettings, encoder: SentenceEncoder, stores: Iterable[TokenStore], places: Places
) -> TokenRows:
    """Return the held-out records at these places, which count through all data sets."""
    anchors, positives, marks = list[str](), list[str](), list[int]()
    query, passage = prompts_of(settings, encoder)
    chosen = {*places.tolist()}
    start = 0
    for store in stores:
        groups = store.held_out_groups
        for number, record in enumerate(store.held_out()):
            if start + number in chosen:
                anchors.append(query + record[0])
                positives.append(passage + record[1] if len(record) > 1 else anchors[-1])
                marks.append(group_mark("", record[0]) if groups is None else int(groups[number]))
        start += store.report.held_out
    first, second = (encoder.tokenize(x, settings.max_length)[0] for x in (anchors, positives))
    return TokenRows(first, second, np.array(marks, np.uint64))


def _trained_rows(stores: Iterable[TokenStore], places: Places) -> TokenRows:
    """Return the trained records at these places, which count through all data sets."""
    anchors, positives = list[NDArray[Any]](), list[NDArray[Any]]()
    marks = list[NDArray[np.uint64]]()
    start = 0
    for store in stores:
        own = places[(places >= start) & (places < start + len(store))] - start
        anchors += store.rows(own, 0)
        positives += store.rows(own, min(1, store.columns - 1))  # a single text is its own positive
        marks += store.group_marks(own) or [store.text_marks(own, 0)]
        start += len(store)
    return TokenRows(anchors, positives, np.concatenate(marks))


def held_out_losses(
    encoder: SentenceEncoder, head: nn.Module, held_out: TokenRows, trained: TokenRows, *, seed: int
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


def _groups(rows: TokenRows) -> Tensor:
    """Return the group of each record: those with a common text or group are together."""
    anchors, positives = (
        [hash64(np.asarray(tokens, np.int64).tobytes()) for tokens in side]
        for side in (rows.anchors, rows.positives)
    )
    marks = np.array([anchors, positives, rows.marks], np.uint64)
    return torch.from_numpy(joined_groups(marks.T))


def _views(encoder: SentenceEncoder, head: nn.Module, rows: TokenRows, seed: int) -> list[Tensor]:
    """Return the embeddings of anchors and positives in training mode, float64."""
    network = nn.ModuleList([encoder, head])
    with modes_kept(network), torch.no_grad(), seeded(seed, encoder.device):
        network.train()
        what = "embed held-out and trained records"
        sides = (encoder.in_pieces(side, what) for side in (rows.anchors, rows.positives))
        return [exact(head(embeddings)) for embeddings in sides]
