"""Measures an encoder on the user's texts or pictures, with both views formed as in training.

The numbers are those of a logged step (:func:`isotrope.diagnostics.observe.measure`), but of the
encoder's own embeddings, since the head of a run is dropped when it ends. Besides them a probe has

- ``mean_cosine``: of different inputs;
- ``copies``: share of the texts that have a copy in the data (isotrope.diagnostics.copies);
- ``count`` and ``dimension``: rows and columns of the embeddings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.data.text.batches import joined_groups
from isotrope.data.text.corpora import read
from isotrope.data.text.repeats import hash64, near_identical
from isotrope.data.text.views import Former, ViewsName
from isotrope.data.text.views import resolve as resolve_views
from isotrope.diagnostics.copies import copied
from isotrope.diagnostics.observe import measure
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.measures.mean_cosine import mean_cosine
from isotrope.paradigm.objective import Objective

__all__ = [
    "ROWS",
    "Texts",
    "embed_views",
    "measure_plain",
    "probe_images",
    "probe_texts",
    "read_texts",
    "texts_of",
]

T = TypeVar("T")

ROWS = 256
"""Inputs that are embedded: their share of anything is known to three percent."""

_READ = 20_000  # records that the samples are drawn from
_COMPARED = 2_000  # texts among which copies are counted
_PIECE = 64  # texts of one forward pass
_SEED = 0


@dataclass(frozen=True)
class Texts:
    """Texts to probe with.

    Attributes:
        records: (text,) or (anchor, positive), at most ``ROWS``.
        views: how a positive is made: ``dropout``, ``adjacent`` or ``pairs``.
        copies: see the module.
        read: records that they were drawn from.
        name: the name of where they come from.
    """

    records: Sequence[tuple[str, ...]]
    views: str
    copies: float
    read: int
    name: str


def read_texts(
    files: Sequence[Path | str],
    *,
    columns: Sequence[str] | None = None,
    views: ViewsName = "auto",
    prompts: tuple[str, str] = ("", ""),
    guarded: bool = False,
    streaming: bool = False,
) -> Texts:
    """Draw texts from files as training reads them.

    Args:
        files: as for ``isotrope train``.
        columns: the columns to read from tables.
        views: as for ``isotrope train``.
        prompts: put before anchors and positives.
        guarded: near-identical texts are not copies: training sees to them.
        streaming: keep no copy of a data set of the hub.

    Raises:
        InputError: anything wrong with the files; fewer than two texts.
    """
    records = read(files, columns=columns, limit=_READ, streaming=streaming)
    first = next(records)
    former = Former(resolve_views(views, first), holdout=0.0, seed=_SEED)
    all_records = chain([first], islice(records, _READ - 1))
    drawn = [formed.texts[:2] for formed in former.form(all_records)]
    name = ", ".join(Path(file).name for file in files)
    return texts_of(drawn, views=former.views, name=name, prompts=prompts, guarded=guarded)


def texts_of(
    drawn: Sequence[tuple[str, ...]],
    *,
    views: str,
    name: str,
    prompts: tuple[str, str] = ("", ""),
    guarded: bool = False,
) -> Texts:
    """Draw texts evenly from records of one or two texts.

    Raises:
        InputError: fewer than two of them.
    """
    if len(drawn) < 2:
        raise InputError(f"{name}: {len(drawn)} text is too few to compare; give at least 2")
    records = [
        tuple(prompt + text for prompt, text in zip(prompts, record, strict=False))
        for record in _evenly(drawn, ROWS)
    ]
    columns = zip(*_evenly(drawn, _COMPARED), strict=True)
    copies = max(copied(column, guarded=guarded) for column in columns)
    return Texts(records, views, copies, len(drawn), name)


def _evenly(records: Sequence[tuple[str, ...]], most: int) -> Sequence[tuple[str, ...]]:
    """Return at most so many of the records, evenly from first to last."""
    return records[:: -(-len(records) // most)]


def probe_texts(
    encoder: SentenceEncoder,
    texts: Texts,
    *,
    objective: Objective | None = None,
    dropout: float | None = None,
    max_length: int | None = None,
    guarded: bool = False,
) -> Mapping[str, float | None]:
    """Return the numbers of an encoder on texts; its modes and weights are restored afterwards.

    Args:
        encoder: the encoder whose embeddings, before any normalisation, are measured.
        texts: the texts to embed.
        objective: an objective whose components are measured, too.
        dropout: see :func:`embed_views`.
        max_length: see there.
        guarded: see there.
    """
    views, plain = embed_views(
        encoder, texts, dropout=dropout, max_length=max_length, guarded=guarded
    )
    return measure(objective, views) | measure_plain(plain) | {"copies": texts.copies}


def embed_views(
    encoder: SentenceEncoder,
    texts: Texts,
    *,
    dropout: float | None = None,
    max_length: int | None = None,
    guarded: bool = False,
) -> tuple[Views, Tensor]:
    """Return both views of texts, and the anchors without dropout.

    Args:
        encoder: its modes and weights are restored afterwards.
        texts: the texts to embed.
        dropout: rate that training put in place of the encoder's own; 0 makes equal views.
        max_length: the most tokens of a text; None is the encoder's own.
        guarded: near-identical texts are not negatives of each other, as in our training.
    """
    ids, _ = encoder.tokenize(
        [text for record in texts.records for text in record],
        min(encoder.max_length, max_length or encoder.max_length),
    )
    width = len(texts.records[0])
    anchors, positives = ids[::width], ids[width - 1 :: width]
    modes = [(module, module.training) for module in encoder.modules()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            plain = _embedded(encoder.eval(), anchors)
            if texts.views == "dropout":
                encoder.train(dropout != 0)
                views = [_embedded(encoder, anchors) for _ in range(2)]
            else:
                views = [plain, _embedded(encoder, positives)]
    finally:
        for module, mode in modes:
            module.training = mode
    return Views(views[0], views[1], groups=_groups(texts) if guarded else None), plain


def probe_images(
    encoder: nn.Module,
    images: Tensor,
    augments: Sequence[Any],
    *,
    objective: Objective | None = None,
) -> Mapping[str, float | None]:
    """Return the numbers of an encoder's features of two random crops of each picture.

    Args:
        encoder: an ImageEncoder; it is put into evaluation mode.
        images: uint8, n x 3 x side x side.
        augments: two of isotrope.data.images.augment, one for each view.
        objective: an objective whose components are measured, too.
    """
    generator = torch.Generator().manual_seed(_SEED)
    encoder.eval()
    with torch.no_grad():
        crops = [a.apply(images, a.draw(len(images), generator)) for a in augments[:2]]
        views = [torch.cat([encoder(x) for x in crop.split(_PIECE)]) for crop in crops]
    measured = measure(objective, Views(views[0], views[1]))
    return measured | measure_plain(views[0]) | {"copies": None}


def _embedded(encoder: SentenceEncoder, ids: Sequence[Sequence[int]]) -> Tensor:
    rows = [
        encoder(**{k: v.to(encoder.device) for k, v in encoder.pad(ids[i : i + _PIECE]).items()})
        for i in range(0, len(ids), _PIECE)
    ]
    return torch.cat(rows).float().cpu()


def measure_plain(embeddings: Tensor) -> dict[str, float | None]:
    """Return the numbers that only a probe has, of embeddings without dropout."""
    return {
        "mean_cosine": float(mean_cosine(embeddings)),
        "count": float(len(embeddings)),
        "dimension": float(embeddings.shape[1]),
    }


def _groups(texts: Texts) -> Tensor:
    import numpy as np

    marks = [[hash64(near_identical(text)) for text in record] for record in texts.records]
    return torch.from_numpy(joined_groups(np.array(marks, np.uint64)))
