"""Audits rows: embeds them, and computes all parts of the result."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.data.text.copies import near_copies
from isotrope.data.text.repeats import groups_of, joined_groups
from isotrope.diagnostics.audit.alike import alike
from isotrope.diagnostics.audit.neighbours import NEAREST, Near, nearest
from isotrope.diagnostics.audit.pairs import find_pairs, find_texts, repeated
from isotrope.diagnostics.audit.pictures import AuditedPictures, PictureAudit
from isotrope.diagnostics.audit.push import Ledger, ledger, mine_negatives
from isotrope.diagnostics.audit.result import Measured
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
from isotrope.evaluation.dev_score import DevMetric, dev_metric_of_file
from isotrope.evaluation.embed import CachedEncoder
from isotrope.evaluation.retrieval import own_prompts
from isotrope.evaluation.uncover import Uncovered, records_to_read, uncover, uncover_records
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

if TYPE_CHECKING:
    from isotrope.diagnostics.audit.options import AuditSettings

_PARTNERS = 20  # partners of a row that the ledger keeps
_CHOICE = 4  # partners to keep for each requested hard negative, because some are not used


def checked_objective(
    objective: str | Objective, settings: Mapping[str, float | str] | None = None
) -> Objective:
    """Return the objective; raise ``InputError`` if an audit cannot measure this objective."""
    if isinstance(objective, str):
        objective = registry.build(objective, settings)
    elif settings:
        raise InputError("give the objective by its name, or leave out objective_settings")
    if not (objective.has_terms and objective.pairwise):
        why = "compares coordinates, not rows, so rows do not push each other"
        if not objective.has_terms:
            why = "has no gradient components, which an audit measures"
        raise InputError(
            f"audit with another objective, for example infonce: {objective.name} {why}"
        )
    try:
        objective.terms(torch.eye(4), torch.eye(4))
    except ValueError as error:  # it needs more than a batch
        raise InputError(f"{objective.name} cannot be audited: {error}") from error
    registry.as_settings(objective)  # the tables and audit.json name it by its settings
    return objective


def check_negatives(objective: Objective, columns: int, name: str = "the file") -> None:
    """Raise an error if the data have hard negatives (3 columns), but the objective takes none."""
    if objective.takes_negatives is False and columns == 3:
        raise InputError(
            "name the two columns of anchors and positives with `--columns`, or choose the "
            f"objective infonce: {objective.name} takes no hard negatives, but {name} has some"
        )


def audit_texts(
    data: object,
    settings: "AuditSettings",
    *,
    encoder: str | os.PathLike[str] | SentenceEncoder,
    objective: Objective | None = None,
) -> TextAudit:
    """Audit texts or pairs. ``isotrope.audit`` describes the arguments and errors."""
    registry.load_plugins(settings.plugin)
    chosen = checked_objective(objective or settings.objective, settings.objective_settings)
    prompts, seed = (settings.query_prompt, settings.passage_prompt), settings.seed
    metric = None
    if settings.dev not in ("auto", "none"):
        # None: those that were saved with the model, as in training
        metric = dev_metric_of_file(Path(settings.dev), prompts=prompts if any(prompts) else None)
    columns = settings.columns or None
    rows = read_rows(data, columns=columns, groups=settings.groups, views=settings.views)
    check_negatives(chosen, rows.columns, rows.name)
    settings.check_used(single=rows.views == "dropout")
    if not isinstance(encoder, SentenceEncoder):
        encoder = SentenceEncoder.load(os.fspath(encoder), device=settings.device)
    limit = settings.max_length or (128 if rows.views == "dropout" else encoder.max_length)
    embedded = embed_rows(encoder, rows, max_length=limit, prompts=prompts, seed=seed)
    if metric is not None:
        uncovered = _uncovered_on_file(encoder, rows, metric, prompts)
    elif settings.dev == "auto":
        uncovered = _uncovered_on_rows(encoder, rows, embedded, settings)
    else:
        uncovered = Uncovered("unknown", "there is no dev set")
    return audit_rows(rows, embedded, chosen, settings, encoder=encoder.name, uncovered=uncovered)


def _uncovered_on_file(
    encoder: SentenceEncoder, rows: PairedRows, metric: DevMetric, prompts: tuple[str, str]
) -> Uncovered:
    """Return the scores of the dev file without and with whitening by texts of the rows."""
    if not metric.queries:  # STS
        prompts = "", ""
    elif not any(prompts):
        prompts = own_prompts(encoder)
    scored, records = set(metric.texts), rows.texts[: records_to_read(encoder.dimension)]
    texts = [
        prompt + text
        for record in records
        for prompt, text in zip(prompts, record, strict=False)  # without hard negatives
        if text not in scored
    ]
    left_out = "texts of the dev file do not count"
    return uncover(encoder, texts, name=metric.name, score=metric.score, left_out=left_out)


def _uncovered_on_rows(
    encoder: SentenceEncoder, rows: PairedRows, embedded: Embedded, settings: "AuditSettings"
) -> Uncovered:
    """Return the scores without and with whitening, measured on a part of the rows."""
    prompts, seed = (settings.query_prompt, settings.passage_prompt), settings.seed
    known: dict[str, np.ndarray[Any, Any]] = {}
    if rows.views != "dropout":  # embeddings with dropout differ from those in use
        for side, vectors in enumerate((embedded.anchors, embedded.positives)):
            own = [prompts[side] + record[side] for record in rows.texts]
            known |= dict(zip(own, vectors.numpy(), strict=True))
    cached = CachedEncoder(encoder, known=known)
    return uncover_records(
        cached, rows.texts, rows.views, prompts=prompts, groups=rows.grouped, seed=seed
    )


def audit_rows(
    rows: PairedRows,
    embedded: EmbeddedTexts,
    objective: Objective,
    settings: "AuditSettings",
    *,
    encoder: str,
    uncovered: Uncovered,
) -> TextAudit:
    """Audit embedded rows; ``uncovered`` has the scores with and without whitening."""
    keep = max(_PARTNERS, _CHOICE * settings.mine)
    near = nearest(embedded, max(NEAREST, keep), seed=settings.seed)
    push = ledger(embedded, objective, near, keep=keep, seed=settings.seed)
    found = find_texts(rows, embedded)
    measured = _measured(embedded, objective, settings, near=near, push=push, found=found)
    mined = None
    if settings.mine:
        mined = mine_negatives(push, measured.groups, rows.marks, settings.mine, settings.hardness)
    columns = zip(*(record[:2] for record in rows.texts), strict=True)
    # unlike measured.groups, without suspects: a near-copy is one whatever the encoder says
    related = joined_groups(np.column_stack([rows.marks, rows.grouped]))
    return TextAudit(
        **vars(measured),
        encoder=encoder,
        recommendations=recommend(measured.settings),
        rows=rows,
        limits=embedded.limits,
        near_copies=max((near_copies(c, groups=related) for c in columns), key=lambda c: c.share),
        uncovered=asdict(uncovered),
        mined=mined,
    )


def audit_pictures(
    pictures: AuditedPictures,
    embedded: Embedded,
    objective: Objective,
    settings: "AuditSettings",
    *,
    encoder: str,
    method: str,
    scratch: bool,
) -> PictureAudit:
    """Audit embedded crops of ``method``. ``scratch``: whether the encoder's weights are random."""
    near = nearest(embedded, max(NEAREST, _PARTNERS), seed=settings.seed)
    push = ledger(embedded, objective, near, keep=_PARTNERS, seed=settings.seed)
    found = {"repeated": repeated(pictures.marks)}
    measured = _measured(embedded, objective, settings, near=near, push=push, found=found)
    return PictureAudit(
        **vars(measured),
        encoder=encoder,
        recommendations=[],  # the rules are for texts
        pictures=pictures,
        method=method,
        scratch=scratch,
    )


def _measured(
    embedded: Embedded,
    objective: Objective,
    settings: "AuditSettings",
    *,
    near: Near,
    push: Ledger,
    found: Mapping[str, NDArray[np.int64]],
) -> Measured:
    """Return the measurements; ``found`` has the rows that were found without embeddings."""
    size, seed = min(settings.batch_size, len(embedded)), settings.seed
    pairs = alike(embedded, near, push)
    suspects = int((pairs.evidence >= settings.suspect).sum())
    # two rows are in one group if training does not push them apart, or if they are suspects
    _, first, group = np.unique(embedded.groups.numpy(), return_index=True, return_inverse=True)
    same = np.stack([first[group], np.arange(len(embedded))], axis=1)
    return Measured(
        objective=objective,
        batch_size=size,
        settings=settings_table(embedded, objective, batch_size=size, seed=seed),
        alike=pairs,
        suspect=settings.suspect,
        suspects=suspects,
        groups=groups_of(np.concatenate([pairs.rows[:suspects], same]), len(embedded)),
        found={**find_pairs(embedded, objective, batch_size=size, seed=seed), **found},
    )
