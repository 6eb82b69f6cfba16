"""Scores retrieval: ranks a corpus by cosine or BM25 and computes MRR, recall and nDCG."""

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from isotrope.core.errors import InputError, needs_extra
from isotrope.core.result import Result, provenance
from isotrope.data.text.retrieval_sets import RetrievalSet
from isotrope.encoders.sentence import SentenceEncoder, check_prompts, saved_prompts
from isotrope.evaluation.embed import Encoder, embed, encoder_name, unwrapped
from isotrope.evaluation.nearest import nearest_rows
from isotrope.measures.judgement import DevEvaluation

_WORD = r"(?u)\b\w+\b"  # words of BM25, also those of one character
_RANKS = 100  # least number of documents that are ranked for a query
ONLY_RANKS = "score bm25 only with `--retrieval`, because it has no embeddings"
"""Message of the error for a task that BM25 cannot be scored on."""


def retrieval(
    encoder: Encoder,
    data: RetrievalSet,
    *,
    ks: Sequence[int] = (1, 10, 100),
    depths: Sequence[int] = (10,),
    prompts: tuple[str, str] | None = None,
    batch_size: int = 128,
) -> Result:
    """Score an encoder on a retrieval task.

    The corpus is ranked for each query, by cosine or by :class:`BM25`. As in BEIR, a document that
    equals the query (``data.itself``) is not ranked. Each metric is a mean over the queries and
    lies in [0, 1]:

    - ``mrr@k``: 1/rank of the first relevant document, or 0 if that rank is above k;
    - ``recall@k``: the share of the relevant documents that is among the first k;
    - ``ndcg@k``: the sum of gain/log2(rank + 1) over the first k, divided by the sum for the best
      possible ranking.

    Args:
        encoder: Any object with ``encode``.
        data: Queries, corpus, and for each query the gains of its relevant documents.
        ks: Values of k for recall.
        depths: Values of k for MRR and nDCG.
        prompts: Prompt of queries and prompt of documents; None takes both from the model.
        batch_size: Number of texts in each batch.

    Returns:
        A Result of kind ``retrieval``. Its ``items`` are a dict from each metric to one value per
        query. ``items["rank"]`` is the rank of the first relevant document, or 0 if this rank is
        above 100. ``items["first"]`` is the index in ``data.corpus`` of the document at rank 1.
    """
    _check(data)
    before_query, before_document = own_prompts(encoder) if prompts is None else prompts
    check_prompts(unwrapped(encoder), before_query, before_document)
    depth = max(*ks, *depths, _RANKS)
    if isinstance(encoder, BM25):
        places = encoder.places(data.queries, data.corpus, depth + bool(data.itself))
    else:
        texts = [before_query + query for query in data.queries]
        texts += [before_document + document for document in data.corpus]
        vectors = embed(encoder, texts, "queries and documents", batch_size=batch_size)
        queries, corpus = np.split(vectors, [len(data.queries)])
        places, _ = nearest_rows(queries, corpus, depth + bool(data.itself))
    places = _itself_last(places, data.itself)[:, :depth]
    gains = _gains(places, data.relevant)
    items = _scores(gains, data.relevant, ks, depths)
    values = {name: float(scores.mean()) for name, scores in items.items()}
    items |= {"rank": _first_ranks(gains > 0), "first": places[:, 0]}
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


def _check(data: RetrievalSet) -> None:
    if not data.queries or not data.corpus:
        raise InputError(
            f"give queries and a corpus to search: found {len(data.queries)} queries and "
            f"{len(data.corpus)} texts"
        )
    for i, row in enumerate(data.relevant):
        if not any(gain > 0 for gain in row.values()):
            raise InputError(f"remove query {i} ({data.queries[i]!r:.60}): it has no relevant text")


def _itself_last(places: np.ndarray, itself: Mapping[int, int]) -> np.ndarray:
    """Return the ranked places (n x k), where a document that is the query itself comes last."""
    if not itself:
        return places
    query_place = np.full((len(places), 1), -1)
    query_place[list(itself), 0] = list(itself.values())
    order = np.argsort(places == query_place, axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1)


def _gains(places: np.ndarray, relevant: Sequence[dict[int, float]]) -> np.ndarray:
    """Return the gain of each ranked document (n x k); 0 if it is not relevant."""
    gains = np.zeros(places.shape)
    for i, row in enumerate(relevant):
        gains[i] = [row.get(place, 0.0) for place in places[i].tolist()]
    return gains.clip(min=0)


def _scores(
    gains: np.ndarray,
    relevant: Sequence[dict[int, float]],
    ks: Sequence[int],
    depths: Sequence[int],
) -> dict[str, np.ndarray]:
    """Return the values of each metric for all queries, from the gains in ranked order (n x k)."""
    hits = gains > 0
    count = np.array([sum(gain > 0 for gain in row.values()) for row in relevant])
    return {
        **{f"mrr@{k}": _reciprocal(_first_ranks(hits[:, :k])) for k in depths},
        **{f"recall@{k}": hits[:, :k].sum(axis=1) / count for k in ks},
        **{f"ndcg@{k}": _ndcg(gains[:, :k], relevant) for k in depths},
    }


def _first_ranks(hits: np.ndarray) -> np.ndarray:
    """Return the rank of the first hit in each row (n x k of bool); 0 for a row without hits."""
    return np.where(hits.any(axis=1), 1 + hits.argmax(axis=1), 0)


def _reciprocal(ranks: np.ndarray) -> np.ndarray:
    """Return 1/rank, or 0 if the rank is 0."""
    return np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0.0)


def _ndcg(gains: np.ndarray, relevant: Sequence[dict[int, float]]) -> np.ndarray:
    """Return the discounted gain of each ranking (n x k), divided by that of the best ranking.

    A query has a relevant document (:func:`_check`), so no divisor is 0.
    """
    discount = 1 / np.log2(np.arange(2, gains.shape[1] + 2))
    best = np.zeros_like(gains)
    for i, row in enumerate(relevant):
        ideal = sorted((gain for gain in row.values() if gain > 0), reverse=True)
        best[i, : len(ideal)] = ideal[: gains.shape[1]]
    return (gains @ discount) / (best @ discount)


def retrieval_evaluation(
    encoder: Encoder,
    data: RetrievalSet,
    *,
    prompts: tuple[str, str] | None = None,
    metric: str = "mrr@10",
) -> DevEvaluation:
    """Return 100 times a metric of :func:`retrieval`, and the metric for each query."""
    result = retrieval(encoder, data, ks=(1,), prompts=prompts)
    return DevEvaluation(100 * float(result.metrics[metric] or 0.0), result.items[metric])


def own_prompts(encoder: Encoder) -> tuple[str, str]:
    """Return the prompt of queries and the prompt of documents that were saved with a model.

    ``encode_query`` and ``encode_document`` of sentence-transformers use the same prompts, unless
    the only prompt for documents is called ``passage`` or ``corpus``: from version 6 on, that
    library gives every model an empty prompt ``document``, and then reads no other one. Both
    prompts are empty if the model's ``encode`` puts one prompt before every text, or if the encoder
    is neither a SentenceEncoder nor a SentenceTransformer.
    """
    encoder = unwrapped(encoder)
    return saved_prompts(encoder.model if isinstance(encoder, SentenceEncoder) else encoder)


def query_changes(results: Sequence[Result], data: RetrievalSet) -> list[dict[str, Any]]:
    """Compare the ranks of answers between the first of some Results and each of the others.

    Each dict has ``better`` and ``worse``, the numbers of queries whose answer rose or fell, and
    ``most``: the three queries that rose most by 1/rank, and the three that fell most.
    """
    before, *others = (_reciprocal(result.items["rank"]) for result in results)
    changes = []
    for result, after in zip(results[1:], others, strict=True):
        order = (after - before).argsort(kind="stable").tolist()
        risen = [i for i in order[:-4:-1] if after[i] > before[i]]
        fallen = [i for i in order[:3] if after[i] < before[i]]
        most = [
            {
                "query": data.queries[i],
                "rank": [int(each.items["rank"][i]) for each in (results[0], result)],
                "first": data.corpus[result.items["first"][i]],
                "answer": data.corpus[max(data.relevant[i], key=data.relevant[i].__getitem__)],
            }
            for i in (*risen, *fallen)
        ]
        better, worse = int((after > before).sum()), int((after < before).sum())
        changes.append({"better": better, "worse": worse, "most": most})
    return changes


def _bm25s() -> ModuleType:
    with needs_extra("bm25"):
        return importlib.import_module("bm25s")


class BM25:
    """BM25 of the library bm25s (k1 = 1.5, b = 0.75) on lower-case words.

    Stop words are kept; words are not stemmed. BM25 has no embeddings, so it only scores retrieval.
    """

    name = "bm25"

    def fingerprint(self) -> str:
        """Return name and version of the library bm25s and the words, for stored scores."""
        return f"bm25s-{_bm25s().__version__}, {_WORD}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Raise an error, because BM25 has no embeddings."""
        raise InputError(ONLY_RANKS)

    def places(self, queries: Sequence[str], corpus: Sequence[str], top: int) -> np.ndarray:
        """Return, for each query, the indices of the ``top`` best texts of the corpus (n x top).

        The best text comes first. If the corpus has fewer than ``top`` texts, all are returned.
        """
        bm25s = _bm25s()
        options = {"token_pattern": _WORD, "stopwords": [], "return_ids": False}
        documents, searched = (
            bm25s.tokenize([*texts], show_progress=False, **options) for texts in (corpus, queries)
        )
        bm25, has_words = bm25s.BM25(), any(documents)  # a text of signs has no words
        if has_words:
            bm25.index(documents, show_progress=False)
        ranked = []
        for words in searched:
            scores = bm25.get_scores(words) if has_words and words else np.zeros(len(corpus))
            ranked.append(_highest(scores, min(top, len(corpus))))
        return np.stack(ranked)


def _highest(scores: np.ndarray, top: int) -> np.ndarray:
    """Return the indices of the ``top`` highest scores, best first; in a tie, the lower index."""
    least = np.partition(scores, -top)[-top]
    above, ties = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    order = np.argsort(-scores[above], kind="stable")
    return np.concatenate([above[order], ties])[:top]
