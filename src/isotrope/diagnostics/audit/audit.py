"""Audits a file of texts with an encoder, from reading the rows to the recommendations."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

from isotrope.core.errors import InputError
from isotrope.diagnostics.audit.rows import Embedded, PairedRows, embed_rows, read_rows
from isotrope.diagnostics.audit.run import (
    audit_rows,
    check_negatives,
    check_numbers,
    checked_objective,
)
from isotrope.diagnostics.audit.texts import TextAudit
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import DevMetric, dev_metric_of_file
from isotrope.evaluation.embed import CachedEncoder
from isotrope.evaluation.uncover import Uncovered, uncover, uncover_records
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

_STATISTICS = 4_000  # records that give mean and covariance, where others are scored


def audit_texts(
    data: object,
    *,
    encoder: str | os.PathLike[str] | SentenceEncoder,
    objective: str | Objective = "infonce",
    objective_settings: Mapping[str, float | str] | None = None,
    columns: Sequence[str] | None = None,
    groups: str | None = None,
    views: Literal["auto", "dropout", "adjacent", "pairs"] = "auto",
    batch_size: int = 64,
    max_length: int = 32,
    query_prompt: str = "",
    passage_prompt: str = "",
    dev: str | Path | None = "auto",
    suspect: float = 0.1,
    mine: int = 0,
    hardness: float = 0.3,
    seed: int = 0,
    device: str = "auto",
    plugins: Sequence[str | Path] = (),
    progress: bool = False,
) -> TextAudit:
    """Audit texts or pairs; arguments and errors are those of ``isotrope.audit``."""
    check_numbers(batch_size, suspect, mine, hardness, seed)
    for plugin in plugins:
        registry.load_plugin(Path(plugin))
    chosen = checked_objective(objective, objective_settings)
    metric = None if dev in (None, "auto") else dev_metric_of_file(Path(str(dev)))
    rows = read_rows(data, columns=columns, groups=groups, views=views)
    check_negatives(chosen, rows.columns, rows.name)
    if mine and rows.views == "dropout":
        raise InputError("leave mine out: single texts have no hard negatives")
    if not isinstance(encoder, SentenceEncoder):
        encoder = SentenceEncoder.load(os.fspath(encoder), device=device)
    prompts = (query_prompt, passage_prompt)
    embedded = embed_rows(
        encoder, rows, max_length=max_length, prompts=prompts, seed=seed, progress=progress
    )
    uncovered = _uncovered(
        encoder, rows, embedded, metric or dev, prompts, seed, grouped=groups is not None
    )
    return audit_rows(
        rows,
        embedded,
        chosen,
        encoder=encoder.name,
        uncovered=asdict(uncovered),
        batch_size=batch_size,
        suspect=suspect,
        mine=mine,
        hardness=hardness,
        seed=seed,
        progress=progress,
    )


def _uncovered(
    encoder: SentenceEncoder,
    rows: PairedRows,
    embedded: Embedded,
    dev: DevMetric | str | Path | None,
    prompts: tuple[str, str],
    seed: int,
    *,
    grouped: bool,
) -> Uncovered:
    """Return the gain that whitening the encoder has, by ``dev`` or on a part of the rows."""
    if dev is None:
        return Uncovered("unknown", "not measured: dev is left out")
    if isinstance(dev, DevMetric):
        texts = [text for record in rows.texts[:_STATISTICS] for text in record[:2]]
        return uncover(encoder, texts, name=dev.name, score=dev.score)
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
