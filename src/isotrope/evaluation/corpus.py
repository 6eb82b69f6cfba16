"""Measures the geometry of a model's embeddings of any texts, without labels or a task.

The texts are encoded block by block. Measures that are sums over rows (norms, spread of the
dimensions, effective rank, mean cosine, alignment of pairs) are exact for any number of rows.
Measures that compare all rows with each other (uniformity, the distance gaps) use a random sample;
the result gives its size. The positives are the second texts of pairs. The positive of a single
text is a second pass with dropout, which only encoders of isotrope provide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isotrope.core.errors import InputError, place
from isotrope.core.result import Result, provenance
from isotrope.core.rounding import same
from isotrope.core.views import unit
from isotrope.data.schemas import read
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.embed import Encoder, embed, encoder_name
from isotrope.measures.distance_gap import gaps
from isotrope.measures.tally import Tally, tally
from isotrope.measures.uniformity import uniformity

_BLOCK = 8192  # records encoded at a time
_VIEWS = 1000  # largest number of single texts that are encoded twice with dropout


@dataclass
class _SideSample:
    """Moments of all embeddings, and the sample, for single texts or for one column of pairs."""

    tally: Tally | None = None
    rows: list[Tensor] = field(default_factory=list)  # embeddings in the sample
    texts: list[str] = field(default_factory=list)  # texts in the sample

    def add(self, rows: Tensor, texts: Sequence[str], chosen: np.ndarray) -> None:
        block = tally(rows)
        self.tally = block if self.tally is None else self.tally + block
        self.rows.append(rows[torch.from_numpy(chosen)].double())
        self.texts += [texts[i] for i in chosen]


def corpus(
    encoder: Encoder,
    data: Path,
    *,
    sample: int = 10_000,
    seed: int = 0,
    batch_size: int = 128,
    progress: bool = False,
) -> Result:
    """Measure the geometry of an encoder's embeddings of a corpus.

    - ``norm_mean``, ``norm_std``, ``norm_min``, ``norm_max``: norms of the embeddings as encoded.
    - ``std_mean``, ``std_min``, ``std_max``: standard deviations of the dimensions. A minimum near
      0 shows a dimension that is not used.
    - ``effective_rank`` of the centred embeddings, and ``rankme`` of the embeddings as they are.
    - ``mean_cosine`` of all pairs of rows, and ``uniformity`` (t = 2) of those in the sample.
      If the records are pairs, both are averages of one value for anchors and one for positives.
    - ``alignment`` (alpha = 2) of all positives; ``distance_gap`` and ``margin_gap``
      (:mod:`isotrope.measures.distance_gap`) in the sample, where the other positives are the
      negatives. For single texts, all three use at most 1,000 texts, each encoded twice with the
      model's own dropout. Without dropout, single texts have no positives, and all three are None.

    Equal texts count as often as they occur.

    Args:
        encoder: Any object with ``encode``; positives of single texts need a ``SentenceEncoder``.
        data: A file or folder that training reads; only the first two texts of a record are used.
        sample: Number of records in the sample, at least 2.
        seed: Seed of the sample and the dropout.
        batch_size: Number of texts in each batch.
        progress: Whether to show a progress bar on stderr, if the encoder can.

    Returns:
        A Result of kind ``corpus``; ``items`` hold ``alignment``, ``distance_gap`` and
        ``margin_gap`` of each measured positive pair.
    """
    if sample < 2:
        raise InputError(f"the sample must hold at least 2 records; found {sample}")
    count = sum(1 for _ in corpus_records(data))
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(count, min(count, sample), replace=False))
    sides, squares = _encode_all(encoder, corpus_records(data), chosen, batch_size, progress)
    rows = [torch.cat(side.rows) for side in sides]
    positives, origin = rows, "pairs"
    if len(sides) == 1:
        some = np.sort(rng.choice(len(chosen), min(len(chosen), _VIEWS), replace=False))
        texts = [sides[0].texts[i] for i in some]
        positives, origin = _dropout_views(encoder, texts, batch_size, seed), "dropout"
        squares = _squares(*positives) if positives else np.empty(0)
    items = {"alignment": squares} if positives else {}
    if positives:
        distance_gaps = gaps(*positives)
        items |= {"distance_gap": distance_gaps[0].numpy(), "margin_gap": distance_gaps[1].numpy()}
    values = {**_spread([side.tally for side in sides if side.tally]), **_closeness(items)}
    values["uniformity"] = float(np.mean([float(uniformity(side)) for side in rows]))
    return Result(
        kind="corpus",
        name=encoder_name(encoder),
        metrics={**values},
        details={
            "corpus": {
                **values,
                "texts": count * len(sides),
                "sampled": len(chosen) * len(sides),
                "positives": origin if positives else None,
                "positive_pairs": len(squares),
                "pairs_compared": len(positives[0]) if positives else 0,
                "dimensions": rows[0].shape[1],
                "seed": seed,
            }
        },
        provenance=provenance(seed=seed),
        items=items,
    )


def corpus_records(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the records of a file or folder; each is a single text or a pair."""
    reading, count = read([path], paired=False, scored=True, choose=0), 0
    for record in reading:
        count += 1
        yield record.texts[:2]
    if reading.left:
        raise InputError(f"{place(path)}: remove or complete {reading.left_out}")
    if count < 2:
        raise InputError(f"{place(path)}: a corpus needs at least two records; found {count}")


def _encode_all(
    encoder: Encoder,
    records: Iterator[tuple[str, ...]],
    chosen: np.ndarray,
    batch_size: int,
    progress: bool,
) -> tuple[list[_SideSample], np.ndarray]:
    """Encode all records; return moments and sample of each side, and ||h_i - h'_i||^2 of pairs."""
    sides: list[_SideSample] = []
    squares: list[np.ndarray] = []
    start = 0
    while block := list(islice(records, _BLOCK)):
        columns = list(zip(*block, strict=True))
        texts = [text for column in columns for text in column]
        vectors = embed(encoder, texts, batch_size=batch_size, progress=progress)
        first, last = np.searchsorted(chosen, (start, start + len(block)))
        sides = sides or [_SideSample() for _ in columns]
        parts = [torch.from_numpy(part) for part in np.split(vectors, len(columns))]
        for side, part, column in zip(sides, parts, columns, strict=True):
            side.add(part, column, chosen[first:last] - start)
        if len(parts) == 2:
            squares.append(_squares(*parts))
        start += len(block)
    return sides, np.concatenate(squares) if squares else np.empty(0)


def _squares(anchors: Tensor, positives: Tensor) -> np.ndarray:
    """Return ||h_i - h'_i||^2 for rows scaled to length 1, n values."""
    squares: np.ndarray = (
        (unit(anchors.double()) - unit(positives.double())).square().sum(dim=1).numpy()
    )
    return squares


def _spread(tallies: Sequence[Tally]) -> dict[str, float | None]:
    """Return the measures that are sums over rows."""
    joint = tallies[0] if len(tallies) == 1 else tallies[0] + tallies[1]
    return {
        "norm_mean": joint.norm_mean,
        "norm_std": joint.norm_std,
        "norm_min": joint.norm_min,
        "norm_max": joint.norm_max,
        "std_mean": float(joint.std.mean()),
        "std_min": float(joint.std.min()),
        "std_max": float(joint.std.max()),
        "effective_rank": joint.effective_rank(),
        "rankme": joint.effective_rank(centre=False),
        "mean_cosine": float(np.mean([side.mean_cosine for side in tallies])),
    }


def _closeness(items: dict[str, np.ndarray]) -> dict[str, float | None]:
    names = ("alignment", "distance_gap", "margin_gap")
    return {name: float(items[name].mean()) if name in items else None for name in names}


def _dropout_views(
    encoder: Encoder, texts: Sequence[str], batch_size: int, seed: int
) -> list[Tensor]:
    """Return the embeddings of two passes with dropout, n x d each; an empty list if equal."""
    if not isinstance(encoder, SentenceEncoder):
        return []
    ids, _ = encoder.tokenize([encoder.prompt + text for text in texts], encoder.max_length)
    views = [view.double() for view in encoder.with_dropout(ids, seed, batch_size)]
    return [] if same(views[0], views[1], torch.float32) else views
