"""Scores retrieval: ranks a corpus by cosine and computes MRR, recall and nDCG."""

from collections.abc import Mapping, Sequence

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance
from isotrope.data.text.retrieval_sets import RetrievalSet
from isotrope.encoders.sentence import SentenceEncoder, saved_prompts
from isotrope.evaluation.bm25 import BM25
from isotrope.evaluation.embed import CachedEncoder, Encoder, Truncated, embed, encoder_name
from isotrope.evaluation.nearest import nearest_rows
from isotrope.evaluation.whitening import WhitenedEncoder
from isotrope.measures.judgement import DevEvaluation


def retrieval(
    encoder: Encoder,
    data: RetrievalSet,
    *,
    ks: Sequence[int] = (1, 10, 100),
    depths: Sequence[int] = (10,),
    prompts: tuple[str, str] | None = None,
    progress: bool = False,
    batch_size: int = 128,
) -> Result:
    """Score an encoder on a retrieval task.

    For each query the corpus is ranked by cosine, or by :class:`BM25`. ``mrr@k`` is the mean of
    1/place of the first relevant text, or 0 if that place is beyond k. ``recall@k`` is the mean
    share of the relevant texts among the first k. ``ndcg@k`` is the mean over the queries of a
    ratio: gain/log2(place + 1), summed over the first k, divided by this sum in the best order.
    All lie in [0, 1]. As in BEIR, a document that is the query itself (``data.itself``) is not
    ranked.

    Args:
        encoder: Anything with ``encode``.
        data: Queries, corpus, and for each query the gains of its relevant documents.
        ks: The depths of recall.
        depths: The depths of MRR and nDCG.
        prompts: Prompts of queries and documents; None uses those saved with the model.
        progress: Whether to show a bar on stderr, if the encoder can.
        batch_size: Texts in each batch.

    Returns:
        A Result of kind ``retrieval``; its ``items`` hold, under the names of the metrics, one
        value for each query.
    """
    _check(data)
    before_query, before_document = own_prompts(encoder) if prompts is None else prompts
    if isinstance(encoder, SentenceEncoder):
        encoder.check_prompts(before_query, before_document)
    depth = max(*ks, *depths)
    if isinstance(encoder, BM25):
        places = encoder.places(data.queries, data.corpus, depth + bool(data.itself))
    else:
        texts = [before_query + query for query in data.queries]
        texts += [before_document + document for document in data.corpus]
        vectors = embed(encoder, texts, batch_size=batch_size, progress=progress)
        queries, corpus = np.split(vectors, [len(data.queries)])
        places, _ = nearest_rows(queries, corpus, depth + bool(data.itself))
    places = _without(places, data.itself)[:, :depth]
    items = _scores(places, data.relevant, ks, depths)
    values = {name: float(scores.mean()) for name, scores in items.items()}
    return Result(
        kind="retrieval",
        name=encoder_name(encoder),
        metrics={**values},
        details={
            "retrieval": values,
            "retrieval_set": {
                "queries": len(data.queries),
                "corpus": len(data.corpus),
                "itself_not_ranked": len(data.itself),
                "query_prompt": before_query,
                "document_prompt": before_document,
            },
        },
        provenance=provenance(),
        items=items,
    )


def retrieval_evaluation(
    encoder: Encoder,
    data: RetrievalSet,
    *,
    prompts: tuple[str, str] | None = None,
    metric: str = "mrr@10",
) -> DevEvaluation:
    """Return 100 times a metric of :func:`retrieval`, with its value for every query."""
    result = retrieval(encoder, data, ks=(1,), prompts=prompts)
    return DevEvaluation(100 * float(result.metrics[metric] or 0.0), result.items[metric])


def own_prompts(encoder: Encoder) -> tuple[str, str]:
    """Return the prompts for queries and for documents that were saved with a model.

    ``encode_query`` and ``encode_document`` of sentence-transformers use the same. Both are empty
    if ``encode`` puts a prompt before every text, or if the encoder is neither a
    SentenceTransformer nor one of ours.
    """
    while isinstance(encoder, (CachedEncoder, Truncated, WhitenedEncoder)):
        encoder = encoder.encoder
    return saved_prompts(encoder.model if isinstance(encoder, SentenceEncoder) else encoder)


def _check(data: RetrievalSet) -> None:
    if not data.queries or not data.corpus:
        raise InputError(
            f"retrieval needs queries and a corpus; found {len(data.queries)} queries and "
            f"{len(data.corpus)} texts"
        )
    for i, row in enumerate(data.relevant):
        if not any(gain > 0 for gain in row.values()):
            raise InputError(f"query {i} ({data.queries[i]!r:.60}) has no relevant text")


def _without(places: np.ndarray, itself: Mapping[int, int]) -> np.ndarray:
    """Return the places found (n x k) with each query's own behind all others."""
    if not itself:
        return places
    query_place = np.full((len(places), 1), -1)
    query_place[list(itself), 0] = list(itself.values())
    order = np.argsort(places == query_place, axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1)


def _scores(
    places: np.ndarray,
    relevant: Sequence[dict[int, float]],
    ks: Sequence[int],
    depths: Sequence[int],
) -> dict[str, np.ndarray]:
    """Return each metric's value for every query, from the places found (n x k)."""
    gains = np.array(
        [
            [row.get(int(place), 0.0) for place in retrieved]
            for retrieved, row in zip(places, relevant, strict=True)
        ]
    ).clip(min=0)
    hits = gains > 0
    count = np.array([sum(gain > 0 for gain in row.values()) for row in relevant])
    return {
        **{f"mrr@{k}": _reciprocal_ranks(hits[:, :k]) for k in depths},
        **{f"recall@{k}": hits[:, :k].sum(axis=1) / count for k in ks},
        **{f"ndcg@{k}": _ndcg(gains[:, :k], relevant) for k in depths},
    }


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
