"""Scores an encoder: STS, transfer and retrieval tasks; kNN and a linear probe on labelled data.

Three more functions return a Result: ``retrieval.retrieval``, ``linear_probe.linear_probe`` and
``nearest.knn``.
"""

from typing import TYPE_CHECKING, Literal

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.evaluation.dispatch import evaluate as evaluate
    from isotrope.evaluation.embed import CachedEncoder as CachedEncoder
    from isotrope.evaluation.embed import WhitenedEncoder as WhitenedEncoder
    from isotrope.evaluation.files import search as search
    from isotrope.evaluation.sts import score_task as score_task
    from isotrope.evaluation.sts import sts_dev as sts_dev
    from isotrope.evaluation.tasks import with_average as with_average
    from isotrope.evaluation.transfer import transfer_task as transfer_task

RankMetric = Literal["mrr@10", "ndcg@10"]
SHOWN: dict[RankMetric, str] = {"mrr@10": "MRR@10", "ndcg@10": "nDCG@10"}
"""Metrics of :func:`isotrope.retrieval` that can be the dev score, and how they are written."""

public(__name__)
