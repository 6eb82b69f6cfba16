"""Measures an encoder on a sample of texts or pictures, paired as in training.

The result has the numbers of a logged step (:func:`isotrope.diagnostics.observe.measure`), but
measured without the projection head, which a run does not save. Four more numbers are added:

- ``mean_cosine``: mean cosine of different inputs;
- ``copies``: share of the texts that have a near-copy (:mod:`isotrope.data.text.copies`);
- ``count`` and ``dimension``: number of embeddings, and number of their dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isotrope.core.autograd import modes_kept, seeded
from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.data.sources import read
from isotrope.data.text.copies import near_copies
from isotrope.data.text.repeats import group_mark, hash64, joined_groups, near_identical
from isotrope.data.text.views import Former, ViewsName
from isotrope.data.text.views import resolve as resolve_views
from isotrope.diagnostics.observe import measure
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.measures.mean_cosine import mean_cosine
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

T = TypeVar("T")

ROWS = 256
"""Number of embedded inputs; the standard error of a share is then about three percent."""

_READ = 20_000  # records that the samples are drawn from
_PIECE = 64  # pictures of one forward pass
_SEED = 0

_QUANTILES = (0.05, 0.5, 0.95)
_DYNAMIC = ("arccon", "met")


@dataclass(frozen=True)
class Texts:
    """A sample of texts to measure an encoder on.

    Attributes:
        records: At most ``ROWS`` tuples: (text,) or (anchor, positive).
        views: Source of the positives: ``dropout``, ``adjacent`` or ``pairs``.
        copies: Share of texts that have a near-copy: the larger one of anchors and positives.
        groups: Group of each record, int64 (n). Training does not push records of one group apart.
            None if all records are negatives of each other.
        read: Number of records from which ``records`` were drawn.
        name: Name of the file or data set.
    """

    records: Sequence[tuple[str, ...]]
    views: str
    copies: float
    groups: NDArray[np.int64] | None
    read: int
    name: str


def read_texts(
    files: Sequence[Path | str],
    *,
    columns: Sequence[str] | None = None,
    groups: str | None = None,
    views: ViewsName = "auto",
    prompts: tuple[str, str] = ("", ""),
    streaming: bool = False,
) -> Texts:
    """Read records from files as training does, and return a sample of their texts.

    Args:
        files: Files, as for ``isotrope train``.
        columns: Columns to read from tables.
        groups: Column with a group of each row. Training does not push apart texts of one group, or
            near-identical texts. So they count as neither copies nor negatives of each other.
        views: Source of the positives, as for ``isotrope train``.
        prompts: Prompts before anchors and positives.
        streaming: Whether to read a data set of the hub without storing it.
    """
    reading = read(files, columns=columns, groups=groups, streaming=streaming)
    records = list(islice(reading, _READ))
    former = Former(resolve_views(views, records[0]), holdout=0.0, seed=_SEED)
    formed = list(former.form(records))
    return texts_of(
        [each.texts[:2] for each in formed],
        views=former.views,
        name=", ".join(Path(file).name for file in files),
        prompts=prompts,
        labels=[each.group for each in formed],
    )


def texts_of(
    drawn: Sequence[tuple[str, ...]],
    *,
    views: str,
    name: str,
    prompts: tuple[str, str] = ("", ""),
    labels: Sequence[str] | None = None,
) -> Texts:
    """Choose evenly spaced records of one or two texts.

    Args:
        drawn: Records to choose from.
        views: Source of the positives.
        name: Name of the source of the records.
        prompts: Prompts before anchors and positives.
        labels: Group of each record, ``""`` for a record without a group. None if training pushes
            all texts apart, including near-identical texts and texts of one group.
    """
    if len(drawn) < 2:
        raise InputError(f"give at least 2 texts: {name} has {len(drawn)}")
    records = [
        tuple(prompt + text for prompt, text in zip(prompts, record, strict=False))
        for record in _evenly(drawn, ROWS)
    ]
    groups = _groups(drawn, labels, len(drawn))
    copies = max(near_copies(column, groups=groups).share for column in zip(*drawn, strict=True))
    return Texts(records, views, copies, _groups(drawn, labels, ROWS), len(drawn), name)


def _evenly(records: Sequence[T], most: int) -> Sequence[T]:
    """Return at most ``most`` records, spaced evenly from first to last."""
    return records[:: -(-len(records) // most)]


def _groups(
    records: Sequence[tuple[str, ...]], labels: Sequence[str] | None, most: int
) -> NDArray[np.int64] | None:
    """Return the groups of at most ``most`` records, formed as in training."""
    if labels is None:
        return None
    drawn = zip(_evenly(records, most), _evenly(labels, most), strict=True)
    marks = []
    for record, label in drawn:
        same_texts = [hash64(near_identical(text)) for text in (record[0], record[-1])]
        marks.append([*same_texts, group_mark(label, record[0])])
    return joined_groups(np.array(marks, np.uint64))


def probe_texts(
    encoder: SentenceEncoder,
    texts: Texts,
    *,
    objective: Objective | None = None,
    dropout: float | None = None,
    max_length: int | None = None,
) -> Mapping[str, float | None]:
    """Return the measurements of an encoder on texts: a dict from names to numbers or None."""
    views, plain = embed_views(encoder, texts, dropout=dropout, max_length=max_length)
    return measure(objective, views) | measure_plain(plain) | {"copies": texts.copies}


def embed_views(
    encoder: SentenceEncoder,
    texts: Texts,
    *,
    dropout: float | None = None,
    max_length: int | None = None,
) -> tuple[Views, Tensor]:
    """Return a tuple: the two views of the texts, and embeddings of the anchors without dropout.

    Args:
        encoder: Encoder. It returns to its present mode (training or evaluation) at the end.
        texts: Texts to embed.
        dropout: Dropout rate of the training. 0 switches dropout off, so that both views are equal.
        max_length: Largest number of tokens of a text; None for the encoder's own limit.
    """
    longest = min(encoder.max_length, max_length or encoder.max_length)
    sentences = [encoder.prompt + text for record in texts.records for text in record]
    ids, _ = encoder.tokenize(sentences, longest)
    width = len(texts.records[0])
    anchors, positives = ids[::width], ids[width - 1 :: width]
    with modes_kept(encoder), torch.no_grad(), seeded(_SEED):
        plain = _embedded(encoder.eval(), anchors, "anchors")
        if texts.views == "dropout":
            encoder.train(dropout != 0)
            views = [_embedded(encoder, anchors, f"{n} view") for n in ("first", "second")]
        else:
            views = [plain, _embedded(encoder, positives, "positives")]
    groups = None if texts.groups is None else torch.from_numpy(texts.groups)
    return Views(views[0], views[1], groups=groups), plain


def probe_images(
    encoder: nn.Module,
    images: Tensor,
    augments: Sequence[Any],
    *,
    objective: Objective | None = None,
) -> Mapping[str, float | None]:
    """Return a dict: the measurements of an encoder on two random crops of each picture."""
    generator = torch.Generator().manual_seed(_SEED)
    with modes_kept(encoder), torch.no_grad():
        encoder.eval()
        crops = [a.apply(images, a.draw(len(images), generator)) for a in augments[:2]]
        views = [torch.cat([encoder(x) for x in crop.split(_PIECE)]) for crop in crops]
    measured = measure(objective, Views(views[0], views[1]))
    return measured | measure_plain(views[0]) | {"copies": None}


def _embedded(encoder: SentenceEncoder, ids: Sequence[Sequence[int]], what: str) -> Tensor:
    return encoder.in_pieces(ids, f"embed {what} with {Path(encoder.name).name}").cpu()


def measure_plain(embeddings: Tensor) -> dict[str, float | None]:
    """Return a dict: ``mean_cosine``, ``count`` and ``dimension`` of embeddings."""
    return {
        "mean_cosine": float(mean_cosine(embeddings)),
        "count": float(len(embeddings)),
        "dimension": float(embeddings.shape[1]),
    }


def model_geometry(views: Views) -> dict[str, Any]:
    """Return a dict of the statistics of embeddings that Li et al. (2024) show in figures.

    Returns:
        - ``positive_angle``, ``negative_angle``: mean and standard deviation, radians (figure 9)
        - ``positive_cosine``, ``negative_cosine``: 5%, 50% and 95% quantiles (figure 5)
        - ``hardest_share``: hardest negative's share of the push; InfoNCE, tau = 0.05 (figure 7)
        - ``lemma_share``: share of anchors for which the bound of Lemma 1 is below 1 (figure 8a)
        - ``ratios``: a dict from ``arccon`` and ``met`` to their ratios of pull to push (figure 8b)
        A statistic that cannot be measured is None.
    """
    measured = {name: measure(registry.build(name), views) for name in ("infonce", *_DYNAMIC)}
    own, unit = measured["infonce"], views.unit()
    cosines = unit.anchors @ unit.positives.T
    return {
        "positive_angle": [own["positive_mean"], own["positive_std"]],
        "negative_angle": [own["negative_mean"], own["negative_std"]],
        "positive_cosine": _quantiles(cosines.diagonal()),
        "negative_cosine": _quantiles(cosines[choose_pairs(unit).negative()]),
        "hardest_share": own["hardest_share"],
        "lemma_share": own["above_bound"],
        "ratios": {name: measured[name]["ratio"] for name in _DYNAMIC},
    }


def _quantiles(cosines: Tensor) -> list[float] | None:
    if not len(cosines):
        return None
    return [float(x) for x in cosines.quantile(torch.tensor(_QUANTILES, dtype=cosines.dtype))]
