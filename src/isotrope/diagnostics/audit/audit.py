"""Audits a file of texts with an encoder, from reading the rows to the recommendations."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isotrope.diagnostics.audit.rows import Embedded, PairedRows, embed_rows, read_rows
from isotrope.diagnostics.audit.run import audit_rows, check_negatives, checked_objective
from isotrope.diagnostics.audit.texts import TextAudit
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import dev_metric_of_file
from isotrope.evaluation.embed import CachedEncoder
from isotrope.evaluation.uncover import Uncovered, uncover, uncover_records
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

if TYPE_CHECKING:
    from isotrope.diagnostics.audit.options import AuditSettings

_STATISTICS = 4_000  # records that give mean and covariance, where others are scored


def audit_texts(
    data: object,
    settings: "AuditSettings",
    *,
    encoder: str | os.PathLike[str] | SentenceEncoder,
    objective: Objective | None = None,
    progress: bool = False,
) -> TextAudit:
    """Audit texts or pairs; arguments and errors are those of ``isotrope.audit``."""
    for plugin in settings.plugin:
        registry.load_plugin(plugin)
    chosen = checked_objective(objective or settings.objective, settings.objective_settings)
    metric = None if settings.dev in ("auto", "none") else dev_metric_of_file(Path(settings.dev))
    rows = read_rows(
        data, columns=settings.columns or None, groups=settings.groups, views=settings.views
    )
    check_negatives(chosen, rows.columns, rows.name)
    settings.check_used(single=rows.views == "dropout")
    if not isinstance(encoder, SentenceEncoder):
        encoder = SentenceEncoder.load(os.fspath(encoder), device=settings.device)
    prompts, seed = (settings.query_prompt, settings.passage_prompt), settings.seed
    embedded = embed_rows(
        encoder, rows, max_length=settings.max_length, prompts=prompts, seed=seed, progress=progress
    )
    uncovered = Uncovered("unknown", "not measured: dev is left out")
    if metric is not None:
        texts = [text for record in rows.texts[:_STATISTICS] for text in record[:2]]
        uncovered = uncover(encoder, texts, name=metric.name, score=metric.score)
    elif settings.dev == "auto":
        grouped = settings.groups is not None
        uncovered = _uncovered(encoder, rows, embedded, prompts, seed, grouped=grouped)
    return audit_rows(
        rows,
        embedded,
        chosen,
        settings,
        encoder=encoder.name,
        uncovered=asdict(uncovered),
        progress=progress,
    )


def _uncovered(
    encoder: SentenceEncoder,
    rows: PairedRows,
    embedded: Embedded,
    prompts: tuple[str, str],
    seed: int,
    *,
    grouped: bool,
) -> Uncovered:
    """Return the gain that whitening the encoder has on a part of the rows."""
    known: dict[str, np.ndarray[Any, Any]] = {}
    if rows.views != "dropout":  # those are not the encoder's plain embeddings
        for side, vectors in enumerate((embedded.anchors, embedded.positives)):
            own = [prompts[side] + record[side] for record in rows.texts]
            known |= dict(zip(own, vectors.numpy(), strict=True))
    cached = CachedEncoder(encoder, known=known)
    own_groups = rows.grouped if grouped else None
    return uncover_records(
        cached, rows.texts, rows.views, prompts=prompts, groups=own_groups, seed=seed
    )
