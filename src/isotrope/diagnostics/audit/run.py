"""Audits rows with an encoder: settings, push, rows that belong together, unusual rows."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.diagnostics.audit.alike import alike
from isotrope.diagnostics.audit.pairs import find_pairs, find_texts, repeated
from isotrope.diagnostics.audit.pictures import AuditedPictures, PictureAudit
from isotrope.diagnostics.audit.push import (
    NEAREST,
    Ledger,
    groups_of,
    ledger,
    mine,
    nearest,
)
from isotrope.diagnostics.audit.rows import (
    Embedded,
    EmbeddedTexts,
    PairedRows,
    embed_rows,
    read_rows,
)
from isotrope.diagnostics.audit.settings import recommend, settings_table
from isotrope.diagnostics.audit.texts import TextAudit
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import dev_metric_of_file
from isotrope.evaluation.embed import CachedEncoder
from isotrope.evaluation.uncover import Uncovered, uncover, uncover_records
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

if TYPE_CHECKING:
    from isotrope.diagnostics.audit.options import AuditSettings

_PARTNERS = 20  # of a row in the ledger
_STATISTICS = 4_000  # records that give mean and covariance, where others are scored
_CHOICE = 4  # partners for each hard negative that is wanted: some are left out


def checked_objective(
    objective: str | Objective, settings: Mapping[str, float | str] | None = None
) -> Objective:
    """Return the objective; raise if it cannot be audited."""
    if isinstance(objective, str):
        objective = registry.build(objective, settings)
    elif settings:
        raise InputError("objective_settings needs an objective given by name")
    if not objective.has_terms or not objective.pairwise:
        what = "compares coordinates, not rows" if objective.has_terms else "has no components"
        raise InputError(
            f"{objective.name} {what}, so rows do not push each other; audit the data with another "
            "objective, for example infonce"
        )
    try:
        objective.terms(torch.eye(4), torch.eye(4))
    except ValueError as error:  # one that needs more than a batch
        raise InputError(f"{objective.name} cannot be audited: {error}") from error
    return objective


def check_negatives(objective: Objective, columns: int, name: str = "the file") -> None:
    """Refuse hard negatives that an objective does not take, before an audit or a training.

    Records of 3 columns have hard negatives.
    """
    if objective.takes_negatives is False and columns == 3:
        raise InputError(
            f"objective {objective.name} takes no hard negatives, but {name} has some; name two "
            "columns, or choose infonce"
        )


def audit_texts(
    data: object,
    settings: "AuditSettings",
    *,
    encoder: str | os.PathLike[str] | SentenceEncoder,
    objective: Objective | None = None,
    progress: bool = False,
) -> TextAudit:
    """Audit texts or pairs; arguments and errors are those of ``isotrope.audit``."""
    registry.load_plugins(settings.plugin)
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
    uncovered = Uncovered("unknown", "not measured, because dev is missing")
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


def audit_rows(
    rows: PairedRows,
    embedded: EmbeddedTexts,
    objective: Objective,
    settings: "AuditSettings",
    *,
    encoder: str,
    uncovered: Mapping[str, Any],
    progress: bool = False,
) -> TextAudit:
    """Audit rows with their embeddings; ``encoder`` is the name of the encoder.

    ``objective`` is a :func:`checked_objective`, ``uncovered`` the gain from whitening.
    """
    keep = max(_PARTNERS, _CHOICE * settings.mine)
    book, common = _measured(embedded, objective, settings, keep=keep, progress=progress)
    common["found"] |= find_texts(rows, embedded)
    mined = None
    if settings.mine:
        mined = mine(book, common["groups"], settings.mine, hardness=settings.hardness)
    return TextAudit(rows=rows, encoder=encoder, **common, uncovered=uncovered, mined=mined)


def audit_pictures(
    pictures: AuditedPictures,
    embedded: Embedded,
    objective: Objective,
    settings: "AuditSettings",
    *,
    encoder: str,
    method: str,
    scratch: bool,
    progress: bool = False,
) -> PictureAudit:
    """Audit pictures with their embeddings; ``method`` is the method that made the views.

    ``objective`` is a :func:`checked_objective`; ``scratch`` says that the encoder is untrained.
    """
    _, common = _measured(embedded, objective, settings, keep=_PARTNERS, progress=progress)
    common["found"]["repeated"] = repeated(pictures.marks[:, None])
    common["recommendations"] = []  # the rules are those of texts
    return PictureAudit(
        pictures=pictures, encoder=encoder, method=method, scratch=scratch, **common
    )


def _measured(
    embedded: Embedded,
    objective: Objective,
    settings: "AuditSettings",
    *,
    keep: int,
    progress: bool,
) -> tuple[Ledger, dict[str, Any]]:
    """Return the push ledger, and the fields of an audit that need only embeddings."""
    size, seed = settings.batch_size, settings.seed
    near = nearest(embedded, max(NEAREST, keep), seed=seed, progress=progress)
    book = ledger(embedded, objective, near, keep=keep, seed=seed, progress=progress)
    pairs = alike(embedded, near, book)
    suspects = int((pairs.evidence >= settings.suspect).sum())
    _, first, group = np.unique(embedded.groups.numpy(), return_index=True, return_inverse=True)
    same = np.stack([first[group], np.arange(len(embedded))], axis=1)
    rows = settings_table(embedded, objective, batch_size=size, seed=seed)
    return book, {
        "objective": objective,
        "batch_size": size,
        "settings": rows,
        "recommendations": recommend(rows),
        "alike": pairs,
        "suspects": suspects,
        "groups": groups_of(np.concatenate([pairs.rows[:suspects], same]), len(embedded)),
        "found": find_pairs(embedded, objective, batch_size=size, seed=seed),
    }
