"""Computes the dev score: a score of the encoder on held-out or other data (``--dev``)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from isotrope.core.fingerprint import fingerprint
from isotrope.data.schemas import read
from isotrope.data.sources import named_errors
from isotrope.data.text.retrieval_sets import load_retrieval
from isotrope.data.text.sts_sets import Subset, load_sts_file
from isotrope.data.text.tokens import TokenStore
from isotrope.evaluation.embed import Encoder
from isotrope.evaluation.holdout import holdout_set
from isotrope.evaluation.retrieval import retrieval_evaluation
from isotrope.evaluation.sts import sts_evaluation
from isotrope.measures.judgement import DevEvaluation

RankMetric = Literal["mrr@10", "ndcg@10"]
"""A metric of a ranking; :func:`isotrope.retrieval` defines it."""

_SHOWN: dict[RankMetric, str] = {"mrr@10": "MRR@10", "ndcg@10": "nDCG@10"}
_HELD_OUT_READ = 4_000  # with more held-out records, 4,000 to 8,000 of them are read


@dataclass(frozen=True)
class DevMetric:
    """A dev score.

    Attributes:
        name: Name of the score, for tables and messages.
        score: Function of an encoder that returns the score, out of 100; larger is better.
        fingerprint: Fingerprint of the texts that are scored and of their expected answers.
        records: Number of held-out records that were read for the score; 0 for other data.
        trained_on: Number of these records that share a text with training; None if unknown.
        queries: Text of each item of the score, if the items are queries.
    """

    name: str
    score: Callable[[Encoder], DevEvaluation]
    fingerprint: str
    records: int = 0
    trained_on: int | None = None
    queries: Sequence[str] = ()


def dev_metric_of_file(path: Path, metric: RankMetric = "mrr@10") -> DevMetric:
    """Return the dev score of an STS file, a retrieval folder or a pairs file."""
    if not _is_sts(path):
        data = load_retrieval(path)
        score = functools.partial(retrieval_evaluation, data=data, metric=metric)
        name = f"dev retrieval {_SHOWN[metric]}"
        return DevMetric(name, score, fingerprint(data, metric), queries=data.queries)
    return _of_scores(load_sts_file(path), f"dev STS Spearman ({path.name})")


def _of_scores(subset: Subset, name: str) -> DevMetric:
    """Return the dev score of scored pairs."""
    data = fingerprint(subset.scores, subset.first, subset.second)  # without the file's name
    return DevMetric(name, lambda encoder: sts_evaluation(encoder, subset), data)


def _is_sts(path: Path) -> bool:
    """Return whether a file holds scored pairs."""
    if path.is_dir():
        return False
    reading = read([path], scored=True, choose=0)
    next(iter(reading))
    return reading.kind == "scored pairs"


def dev_metric_held_out(
    stores: Mapping[str, TokenStore], *, prompts: tuple[str, str], metric: RankMetric = "mrr@10"
) -> DevMetric:
    """Return the dev score on the held-out records of a run. It needs no labels.

    Each data set is searched separately. The score is the mean over all queries. If records have
    groups, every target of the query's group is a correct answer. For scored pairs, the score is
    Spearman's correlation.
    """
    sets, scored, looked_at, met = [], [], 0, 0
    for name, store in stores.items():
        # every k-th record: enough to choose from, but bounded for any size of the corpus
        stride = max(1, store.report.held_out // _HELD_OUT_READ)
        groups = store.held_out_groups
        with named_errors(name):
            records = list(islice(store.held_out(), 0, None, stride))
            chosen = None if groups is None else groups[::stride]
            looked_at += len(records)
            met += int(
                np.any([other.trained_on(records) for other in stores.values()], axis=0).sum()
            )
            if store.report.scored == 1 and store.columns == 2:
                scored += records
            else:
                sets.append(holdout_set(records, store.report.views, groups=chosen))
    if scored:
        *sides, scores = zip(*scored, strict=True)
        texts = [[p + text for text in side] for p, side in zip(prompts, sides, strict=True)]
        pairs = Subset("the held-out part", "", "dev", np.array(scores), *texts)
        name = f"held-out Spearman of {len(pairs)} pairs"
        return replace(_of_scores(pairs, name), records=looked_at, trained_on=met)

    def score(encoder: Encoder) -> DevEvaluation:
        first, *others = (
            retrieval_evaluation(encoder, data, prompts=prompts, metric=metric) for data in sets
        )
        if not others:
            return first
        items = np.concatenate([first.items, *(other.items for other in others)])
        return DevEvaluation(100 * float(items.mean()), items)

    count = sum(len(data.queries) for data in sets)
    name = f"held-out {_SHOWN[metric]} of {count} queries"
    queries = [query for data in sets for query in data.queries]
    return DevMetric(name, score, fingerprint(sets, metric), looked_at, met, queries)
