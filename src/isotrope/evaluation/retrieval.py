"""Retrieval: find the relevant texts of a corpus by exact cosine search, in bounded memory.

Scores are cosines in float64, kept to nine decimals; among equal scores the lower place in the
corpus comes first. So the order is the same whatever the tiles and the libraries below, and texts
that occur twice do not trade places.
"""

from collections.abc import Sequence

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance
from isotrope.data.retrieval_sets import RetrievalSet
from isotrope.evaluation.embed import Encoder, embed, encoder_name

__all__ = ["nearest_rows", "retrieval", "retrieval_dev", "search"]

_DEPTH = 10
"""Places of the ranking that MRR@10 and nDCG@10 look at."""

# one int64 carries a score and a place: 31 bits of (1 + cosine) * 1e9 above 32 bits of place
_STEPS = 10**9
_PLACES = 2**32 - 1


def retrieval(
    encoder: Encoder,
    data: RetrievalSet,
    *,
    ks: Sequence[int] = (1, 10),
    progress: bool = False,
    batch_size: int = 128,
) -> Result:
    """Score an encoder by what it finds.

    For each query the corpus is ranked by cosine. ``mrr@10`` is the mean of 1/place of the first
    relevant text, 0 beyond place 10; ``recall@k`` the mean share of the relevant texts within
    the first k; ``ndcg@10`` the mean of sum gain/log2(place + 1) over the first 10, divided by
    the same for the best order. All lie in [0, 1].

    Args:
        encoder: anything with ``encode``.
        data: queries, corpus, and for each query the gains of its relevant places.
        ks: the depths of recall.
        progress: show a bar on stderr, where the encoder can.
        batch_size: texts a batch.

    Raises:
        InputError: no queries, no corpus, a query without anything relevant, a k below 1.
    """
    if not data.queries or not data.corpus:
        raise InputError(
            f"retrieval needs queries and a corpus; found {len(data.queries)} queries and "
            f"{len(data.corpus)} texts"
        )
    if any(k < 1 for k in ks):
        raise InputError(f"recall@k needs k of at least 1; found {min(ks)}")
    for i, row in enumerate(data.relevant):
        if not any(gain > 0 for gain in row.values()):
            raise InputError(f"query {i} ({data.queries[i]!r:.60}) has no relevant text")
    vectors = embed(
        encoder, [*data.queries, *data.corpus], batch_size=batch_size, progress=progress
    )
    queries, corpus = np.split(vectors, [len(data.queries)])
    places, _ = nearest_rows(queries, corpus, max(_DEPTH, *ks))
    gains = np.array(
        [
            [relevant.get(int(place), 0.0) for place in found]
            for found, relevant in zip(places, data.relevant, strict=True)
        ]
    ).clip(min=0)
    hits = gains > 0
    count = np.array([sum(gain > 0 for gain in row.values()) for row in data.relevant])
    values = {
        f"mrr@{_DEPTH}": float(_reciprocal_ranks(hits[:, :_DEPTH]).mean()),
        **{f"recall@{k}": float((hits[:, :k].sum(axis=1) / count).mean()) for k in ks},
        f"ndcg@{_DEPTH}": float(_ndcg(gains[:, :_DEPTH], data.relevant).mean()),
    }
    return Result(
        kind="retrieval",
        name=encoder_name(encoder),
        metrics={**values},
        details={
            "retrieval": values,
            "queries": len(data.queries),
            "corpus": len(data.corpus),
        },
        provenance=provenance(),
    )


def retrieval_dev(encoder: Encoder, data: RetrievalSet, *, batch_size: int = 128) -> float:
    """Return 100 MRR@10: a score to choose a model by, on the scale of ``sts_dev``."""
    metrics = retrieval(encoder, data, ks=(1,), batch_size=batch_size).metrics
    return 100 * float(metrics[f"mrr@{_DEPTH}"] or 0.0)


def search(
    encoder: Encoder, corpus: Sequence[str] | np.ndarray, query: str, top: int = 10
) -> list[tuple[int, float]]:
    """Return the ``top`` places of the corpus nearest to a query, with their cosines, best first.

    Args:
        encoder: anything with ``encode``.
        corpus: m texts, or their embeddings (m x d).
        query: a text.
        top: how many; fewer if the corpus is smaller.

    Raises:
        InputError: an empty corpus, ``top`` below 1, or embeddings of another encoder.
    """
    if top < 1:
        raise InputError(f"at least 1 result must be asked for; found {top}")
    if len(corpus) == 0:
        raise InputError("the corpus is empty, so there is nothing to search")
    if isinstance(corpus, np.ndarray):
        (vector,), rows = embed(encoder, [query]), corpus
        if rows.ndim != 2 or rows.shape[1] != len(vector):
            raise InputError(
                f"the embeddings of the corpus have shape {rows.shape} but "
                f"{encoder_name(encoder)} gives {len(vector)} numbers a text; encode it again"
            )
    else:
        vector, *others = embed(encoder, [query, *corpus])
        rows = np.stack(others)
    places, scores = nearest_rows(vector[None], rows, top)
    return [(int(i), float(s)) for i, s in zip(places[0], scores[0], strict=True)]


def nearest_rows(
    queries: np.ndarray, corpus: np.ndarray, top: int, *, tile: int = 4_000_000
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of ``corpus`` with the highest cosine, by exhaustive search.

    Args:
        queries: n x d.
        corpus: m x d, m below 2^32. A zero row, or one that is not finite, has cosine 0.
        top: k; all m if there are fewer.
        tile: similarities held at a time (of 8 bytes, about three copies).

    Returns:
        Places (n x k, int64) and cosines (n x k, float64, nine decimals), best first; among equal
        cosines the lower place first.
    """
    top = min(top, len(corpus))
    high = max(1, min(len(queries), 1024))
    wide = max(top, tile // high)
    keys = np.empty((len(queries), top), dtype=np.int64)
    for row in range(0, len(queries), high):
        anchors = _unit(queries[row : row + high])
        best = np.empty((len(anchors), 0), dtype=np.int64)
        for start in range(0, len(corpus), wide):
            rows = _unit(corpus[start : start + wide])
            steps = np.rint((anchors @ rows.T + 1) * _STEPS).astype(np.int64)
            place = np.arange(start, start + len(rows), dtype=np.int64)
            # all keys differ, so partition and sort need not be stable
            found = np.concatenate([best, (steps << 32) | (_PLACES - place)], axis=1)
            if found.shape[1] > top:
                found = np.partition(found, found.shape[1] - top, axis=1)[:, -top:]
            best = found
        keys[row : row + high] = np.sort(best, axis=1)[:, ::-1]
    return _PLACES - (keys & _PLACES), (keys >> 32) / _STEPS - 1


def _unit(rows: np.ndarray) -> np.ndarray:
    """Return the rows on the unit sphere, in float64; zero where there is no direction."""
    rows = np.asarray(rows, dtype=np.float64)
    with np.errstate(all="ignore"):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(np.isfinite(unit).all(axis=1, keepdims=True), unit, 0.0)


def _reciprocal_ranks(hits: np.ndarray) -> np.ndarray:
    """Return 1/place of the first hit of each row (n x k of bool), 0 where there is none."""
    return np.where(hits.any(axis=1), 1 / (1 + hits.argmax(axis=1)), 0.0)


def _ndcg(gains: np.ndarray, relevant: Sequence[dict[int, float]]) -> np.ndarray:
    """Return the discounted gain of each ranking (n x k) over that of the best ranking."""
    discount = 1 / np.log2(np.arange(2, gains.shape[1] + 2))
    best = np.zeros_like(gains)
    for i, row in enumerate(relevant):
        ideal = sorted((gain for gain in row.values() if gain > 0), reverse=True)
        best[i, : len(ideal)] = ideal[: gains.shape[1]]
    return (gains @ discount) / (best @ discount)
