"""Measures the gain from whitening: the score with whitening minus the score without whitening.

Whitening gives the embeddings mean 0 and identity covariance, without training. If whitening raises
the score, the embeddings already contained what the task needs, but directions that do not help
dominated the cosine. The gain distinguishes three kinds of encoder:

- *raw*: an encoder that was never trained on pairs. Whitening more than doubles the score, and the
  choice of the objective matters much.
- *disturbed*: typically a sentence encoder that was later trained on something else. Whitening
  raises the score, but does not double it. Training has to gain more than whitening to be of use.
- *trained*: whitening does not raise the score, so look for gains in the data.

The mean cosine of different texts does not distinguish raw from disturbed encoders. It is 0.85 for
a disturbed encoder, and 0.76 or 0.92 for a raw encoder, depending on its pooling (docs/LOG.md).

The mean and the covariance for whitening come from texts that are not scored.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.evaluation.dev_score import holdout_set
from isotrope.evaluation.embed import CachedEncoder, Encoder, WhitenedEncoder, embed
from isotrope.evaluation.retrieval import retrieval_evaluation
from isotrope.measures.judgement import DevEvaluation, DevHistory, judge
from isotrope.measures.mean_cosine import mean_cosine

RAW = 0.5
"""An encoder is *raw* if its score divided by its score with whitening is below this number."""

FLOOR = 10.0
"""If both scores are below this number and whitening gains nothing, the task is too hard."""

ROWS_PER_DIMENSION = 2
"""Number of texts needed for each dimension; with fewer, the covariance is mostly noise."""

_SCORED = 1000  # largest number of records that are scored
_TEXTS = 4000  # number of records that give mean and covariance, if the encoder needs no more

EncoderKind = Literal["raw", "disturbed", "trained", "unknown"]
Score = Callable[[Encoder], DevEvaluation]

_MEANINGS: dict[EncoderKind, str] = {
    "raw": "whitening more than doubles the score, which is typical of an encoder that was never "
    "trained on pairs. Compare several objectives (isotrope sweep), because they matter much here.",
    "disturbed": "whitening alone raises the score, which is typical of a sentence encoder that "
    "was later trained on something else. Compare every training with whitening: a training that "
    "gains less than whitening has learnt nothing new.",
    "trained": "whitening does not help, which is typical of an encoder trained on pairs: data "
    "and settings matter more than the objective.",
    "unknown": "the score is too low to show anything, with and without whitening. Give an STS "
    "file or a retrieval set with `isotrope audit --dev`.",
}


@dataclass(frozen=True)
class Uncovered:
    """The scores of an encoder without and with whitening, before any training.

    Attributes:
        kind: ``raw``, ``disturbed`` or ``trained``; ``unknown`` if the scores do not show the kind.
        sentence: What the kind means for a training; for ``unknown``, why the kind is not known.
        score: Name of the score.
        raw: Score without whitening, out of 100; None, like the next four, if nothing was scored.
        whitened: Score with whitening, out of 100.
        low: Lower end of the 95% confidence interval of ``whitened - raw``.
        high: Upper end of this interval.
        mean_cosine: Mean cosine of two different texts, without whitening.
        texts: Number of texts from which mean and covariance were computed.
    """

    kind: EncoderKind
    sentence: str
    score: str = ""
    raw: float | None = None
    whitened: float | None = None
    low: float | None = None
    high: float | None = None
    mean_cosine: float | None = None
    texts: int = 0


def records_to_read(dimension: int) -> int:
    """Return how many records give mean and covariance of an encoder of this dimension."""
    return max(_TEXTS, ROWS_PER_DIMENSION * dimension)


def uncover(
    encoder: Encoder, texts: Sequence[str], *, name: str, score: Score, left_out: str
) -> Uncovered:
    """Score an encoder with and without whitening, on the same examples.

    The mean and covariance for whitening are computed from ``texts``, which must not be scored. If
    they are too few, ``left_out`` says in the message which texts were left out.
    """
    cached = CachedEncoder(encoder)
    different = list(dict.fromkeys(texts))
    if len(different) < 2:
        return Uncovered("unknown", "give more texts: whitening needs texts that are not scored")
    rows = torch.from_numpy(embed(cached, different, "texts for whitening")).double()
    needed = ROWS_PER_DIMENSION * rows.shape[1]
    if len(rows) < needed:
        return Uncovered(
            "unknown",
            f"give more texts: whitening needs {needed:,} texts that are not scored "
            f"({ROWS_PER_DIMENSION} for each dimension). Found {len(rows):,}; {left_out}, and "
            "each text counts once",
        )
    if not bool((rows != rows[0]).any()):
        why = f"replace the encoder: it gives {len(rows):,} different texts the same embedding"
        return Uncovered("unknown", why)
    history = DevHistory(name, saved="last")  # whitening is judged as if it were a training
    history.add(0, score(cached))
    history.add(1, score(WhitenedEncoder(cached, different)))
    judgement, (raw, whitened) = judge(history), history.scores.values()
    numbers = judgement.numbers["last"]
    kind: EncoderKind = "trained"
    if judgement.outcome == "improved":
        kind = "raw" if raw < RAW * whitened else "disturbed"
    elif max(raw, whitened) < FLOOR:
        kind = "unknown"
    low, high, cosine = numbers["low"], numbers["high"], float(mean_cosine(rows))
    return Uncovered(kind, _MEANINGS[kind], name, raw, whitened, low, high, cosine, len(rows))


def uncover_records(
    encoder: Encoder,
    records: Sequence[Sequence[str]],
    views: str,
    *,
    prompts: tuple[str, str] = ("", ""),
    groups: NDArray[np.integer[Any]] | None = None,
    seed: int = 0,
) -> Uncovered:
    """Score how well an encoder finds the positives of records, with and without whitening.

    Single texts are not scored. Their halves would have to find each other, but halves share rare
    words: whitening a disturbed encoder lowers this score, but raises STS scores (docs/LOG.md).

    Args:
        encoder: The encoder before training.
        records: The records of a training. A third of the records, at most 1,000, are scored.
        views: How a positive is formed: ``dropout``, ``adjacent`` or ``pairs``.
        prompts: Prompts of queries and targets.
        groups: A number for each record. All targets with the number of the query are correct.
        seed: Seed of the choice of records.
    """
    if views == "dropout":
        return Uncovered(
            "unknown",
            "give pairs of texts; or give `isotrope audit --dev` an STS file or a retrieval set: "
            "single texts do not show the effect of whitening",
        )
    order = np.random.default_rng(seed).permutation(len(records))
    scored = min(len(records) // 3, _SCORED)
    try:
        data = holdout_set(
            [records[i] for i in order[:scored]],
            views,
            seed=seed,
            groups=None if groups is None else groups[order[:scored]],
        )
    except InputError:
        why = f"add records: only a third is scored; {len(records):,} are too few"
        return Uncovered("unknown", why)
    queries = [prompts[0] + text for text in data.queries]
    corpus = [prompts[1] + text for text in data.corpus]
    data = replace(data, queries=queries, corpus=corpus)
    last = scored + records_to_read(embed(encoder, queries[:1]).shape[1])
    others = [
        prompt + text
        for i in order[scored:last]
        for prompt, text in zip(prompts, records[i], strict=False)
    ]
    own = {*queries, *corpus}
    return uncover(
        encoder,
        [text for text in others if text not in own],
        name=f"MRR@10 of {len(queries)} queries",
        score=functools.partial(retrieval_evaluation, data=data, prompts=("", "")),
        left_out=f"a third of the records, at most {_SCORED:,}, is scored",
    )
