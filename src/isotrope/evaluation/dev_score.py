"""Computes the dev score (``--dev``): the encoder's score on held-out records or given data.

With ``--dev auto``, the held-out records, which are never trained on, become a search task without
labels. In a pair (or two adjacent texts), the first text is the query and the second is the target.
A single text of at least eight words is cut in the middle into query and target. For each query,
all held-out targets are ranked. The score is MRR@10: the mean of 1/rank of the query's own target,
with 0 in place of 1/rank if the rank is above 10.

This score shows whether an embedding keeps enough of a text's subject to recognise the text's
continuation among a few hundred other texts. The score falls when training destroys a model, and
stops rising when training stops helping. It does not measure similarity as people judge it: it
cannot distinguish a paraphrase from a contradiction on the same subject. Shared words make the task
easy, so a high score proves no understanding. Compare scores only on the same records and seed.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.core.fingerprint import fingerprint
from isotrope.data.sources import named_errors, read
from isotrope.data.text.repeats import hash64, joined_groups, near_identical
from isotrope.data.text.retrieval_sets import RetrievalSet, from_labels, from_pairs, load_retrieval
from isotrope.data.text.sts_sets import Subset, load_sts_file
from isotrope.data.text.tokens import TokenStore
from isotrope.data.text.views import FEWEST
from isotrope.evaluation import SHOWN, RankMetric
from isotrope.evaluation.embed import Encoder
from isotrope.evaluation.retrieval import retrieval_evaluation
from isotrope.evaluation.sts import sts_evaluation
from isotrope.measures.judgement import DevEvaluation

_HELD_OUT_READ = 4_000  # with more held-out records, 4,000 to 8,000 of them are read
_WORDS = 8  # fewest words of a single text that is cut in two
LEAST = 20
"""Fewest pairs of a held-out task."""
USABLE = ("pairs of two different texts", f"texts of at least {_WORDS} words")
"""Records that can be scored: pairs, and single texts."""
MOST = 1_000
"""Most pairs of a held-out task; more are not scored."""


@dataclass(frozen=True)
class DevMetric:
    """A score on the dev set: its name, its data and the function that computes it.

    Attributes:
        name: Name of the score, for tables and messages.
        score: Function that takes an encoder and returns its score, out of 100; higher is better.
        fingerprint: Fingerprint of the texts that are scored and of their expected answers.
        records: Number of scored records that are looked for in the training data.
        trained_on: Number of these records with a text of the training data; None if unknown.
        queries: The texts of the queries; empty if the score is not a mean over queries.
        texts: All texts of the data of ``--dev``, which are embedded for a score.
    """

    name: str
    score: Callable[[Encoder], DevEvaluation]
    fingerprint: str
    records: int = 0
    trained_on: int | None = None
    queries: Sequence[str] = ()
    texts: Sequence[str] = ()

    def with_counts(self, stores: Mapping[str, TokenStore]) -> "DevMetric":
        """Return the score of a file with its ``records`` (queries, or first sentences) counted."""
        # of scored pairs, the first half of the texts are the first sentences
        records = [(text,) for text in self.queries or self.texts[: len(self.texts) // 2]]
        return replace(self, records=len(records), trained_on=_trained_on(records, stores))


def dev_metric_of_file(
    path: Path, metric: RankMetric = "mrr@10", *, prompts: tuple[str, str] | None = None
) -> DevMetric:
    """Return the dev score of an STS file, or (with ``prompts``) of a retrieval set or pairs."""
    if not _is_sts(path):
        data = load_retrieval(path, choose=0)
        score = functools.partial(retrieval_evaluation, data=data, metric=metric, prompts=prompts)
        return DevMetric(
            f"dev retrieval {_named(metric, [data])}",
            score,
            fingerprint(data, metric),
            queries=data.queries,
            texts=[*data.queries, *data.corpus],
        )
    return _of_scores(load_sts_file(path), f"dev STS Spearman ({path.name})")


def _of_scores(subset: Subset, name: str) -> DevMetric:
    data = fingerprint(subset.scores, subset.first, subset.second)  # without the file's name
    texts = [*subset.first, *subset.second]
    return DevMetric(name, lambda encoder: sts_evaluation(encoder, subset), data, texts=texts)


def _trained_on(records: Sequence[Sequence[str]], stores: Mapping[str, TokenStore]) -> int:
    """Return the number of records with a text that is in one of the stores."""
    return int(np.any([store.trained_on(records) for store in stores.values()], axis=0).sum())


def _is_sts(path: Path) -> bool:
    """Return whether a file holds scored pairs."""
    if path.is_dir():
        return False
    reading = read([path], scored=True, tabs=True, choose=0)
    next(iter(reading))
    return reading.kind == "scored pairs"


def dev_metric_held_out(
    stores: Mapping[str, TokenStore], *, prompts: tuple[str, str], metric: RankMetric = "mrr@10"
) -> DevMetric:
    """Return the dev score on the held-out records of a run. It needs no labels.

    Each data set is searched separately. The score is the mean over all queries. If an answer has
    several questions, the answers of the training data are ranked too. If records have groups, all
    texts of the query's group are correct. For pairs with scores, the dev score is Spearman's
    correlation. Pairs that were held out together because they share a text, directly or through
    other pairs, and scored pairs of one first text are also drawn together in the bootstrap.
    """
    sets, scored, looked_at, met = [], [], 0, 0
    together = list[Sequence[Any]]()
    for name, store in stores.items():
        # every k-th record: enough to choose from, but bounded for any size of the corpus
        stride = max(1, store.report.held_out // _HELD_OUT_READ)
        groups = store.held_out_groups
        with named_errors(name):
            records = list(islice(store.held_out(), 0, None, stride))
            chosen = None if groups is None else groups[::stride]
            looked_at += len(records)
            met += _trained_on(records, stores)
            together += records if store.report.together else []
            if store.report.scored == 1 and store.columns == 2:
                scored += records
            else:
                known = store.answers()
                views, whole = store.report.views, store.report.kept + store.report.held_out
                sets.append(holdout_set(records, views, groups=chosen, others=known, whole=whole))
    linked = _linked(together)
    if scored:
        *sides, scores = zip(*scored, strict=True)
        texts = [[p + text for text in side] for p, side in zip(prompts, sides, strict=True)]
        pairs = Subset("the held-out part", "", "dev", np.array(scores), *texts)
        numbers, count = _groups(sides[0], linked)

        def correlation(encoder: Encoder) -> DevEvaluation:
            return replace(sts_evaluation(encoder, pairs), groups=numbers)

        of_pairs = _of_scores(pairs, f"held-out Spearman of {len(pairs)} pairs{count}")
        return replace(of_pairs, score=correlation, records=looked_at, trained_on=met)
    queries = [query for data in sets for query in data.queries]
    numbers, count = _groups(queries, linked)

    def score(encoder: Encoder) -> DevEvaluation:
        each = [retrieval_evaluation(encoder, one, prompts=prompts, metric=metric) for one in sets]
        if len(each) == 1:
            return replace(each[0], groups=numbers)
        items = np.concatenate([evaluation.items for evaluation in each])
        return DevEvaluation(100 * float(items.mean()), items, groups=numbers)

    name = f"held-out {_named(metric, sets, count)}"
    return DevMetric(name, score, fingerprint(sets, metric), looked_at, met, queries)


def _linked(records: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return a dict from first texts to ids, which are equal for linked pairs."""
    marks = [[hash64(near_identical(text)) for text in record[:2]] for record in records]
    ids = joined_groups(np.array(marks, np.uint64).reshape(-1, 2)).tolist()
    return dict(zip((record[0] for record in records), ids, strict=True))


def _groups(
    texts: Sequence[str], linked: Mapping[str, int]
) -> tuple[NDArray[np.int64] | None, str]:
    """Return the number of each text's group, and a phrase; None and "" if all are alone."""
    groups = dict[int | str, int]()
    # equal texts are in one group: scored pairs of one first text are always held out together
    numbers = [groups.setdefault(linked.get(text, text), len(groups)) for text in texts]
    if len(groups) == len(texts):
        return None, ""
    return np.array(numbers), f" in {len(groups):,} groups"


def _named(metric: RankMetric, sets: Sequence[RetrievalSet], groups: str = "") -> str:
    """Return the metric with the number of queries and of texts that are ranked for each."""
    queries = sum(len(data.queries) for data in sets)
    texts = " or ".join(f"{len(data.corpus):,}" for data in sets)
    return f"{SHOWN[metric]} of {queries:,} queries{groups} among {texts} texts"


def holdout_set(
    records: Sequence[Sequence[str]],
    views: str,
    seed: int = 0,
    groups: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    others: Mapping[str, int] = {},
    whole: int = 0,
) -> RetrievalSet:
    """Make a search task from held-out records.

    Equal queries become one query, and equal targets become one target. Records whose query equals
    the target are left out. If more than :data:`MOST` pairs remain, this many are drawn. If records
    have groups, all targets of the query's group are correct.

    Args:
        records: The texts of each record: for ``dropout`` one text, for ``adjacent`` and ``pairs``
            an anchor and its positive. All other texts are ignored.
        views: ``dropout``, ``adjacent`` or ``pairs``, as in training.
        seed: Seed of the draw.
        groups: A number for each record, equal for records that belong together. If a pair occurs
            in several records, the number of the first record counts.
        others: Texts that are ranked besides the targets, each with the number of its group.
        whole: Number of all records, with those that are not held out; 0 if unknown.
    """
    found = usable(records, views)
    if len(found) < LEAST:
        # for twice as many as needed, because the share that a hash holds out varies
        able = whole * len(found) / len(records) if records else whole
        share = math.ceil(100 * FEWEST / max(1, able)) / 100
        more = f"hold out more records with `--holdout {share:g}`, or "
        raise InputError(
            f"{more if share <= 0.5 else ''}give `--dev` an STS file or a "
            f"retrieval folder: found {len(found)} {USABLE[views == 'dropout']} among "
            f"{len(records)} held-out records, but `--dev auto` needs {LEAST}"
        )
    pairs = list(found)
    order = np.random.default_rng(seed).permutation(len(pairs))[:MOST]
    drawn = [pairs[i] for i in order]
    if groups is None:
        return from_pairs(drawn, others)
    numbers = [int(groups[found[pair]]) for pair in drawn]
    anchors, targets = ([*zip(side, numbers, strict=True)] for side in zip(*drawn, strict=True))
    return from_labels(anchors, [*targets, *others.items()])


def usable(records: Iterable[Sequence[str]], views: str) -> dict[tuple[str, str], int]:
    """Return the different pairs of query and target, each with the number of its first record."""
    halves = (_halves(record[0]) if views == "dropout" else record[:2] for record in records)
    pairs: dict[tuple[str, str], int] = {}
    for number, (query, target) in enumerate(halves):
        if query and target and query != target:
            pairs.setdefault((query, target), number)
    return pairs


def _halves(text: str) -> tuple[str, str]:
    """Cut a text in the middle of its words; return two empty texts if there are too few words."""
    words = text.split()
    if len(words) < _WORDS:
        return "", ""
    middle = len(words) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])
