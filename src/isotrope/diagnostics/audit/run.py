"""Audits embedded rows: settings, push ledger, unusual rows, hard negatives."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.diagnostics.audit.pairs import find_pairs, find_texts, repeated
from isotrope.diagnostics.audit.pictures import AuditedPictures, PictureAudit
from isotrope.diagnostics.audit.push import Ledger, groups_of, ledger, mine, mutual
from isotrope.diagnostics.audit.rows import Embedded, EmbeddedTexts, PairedRows
from isotrope.diagnostics.audit.settings import recommend, settings_table
from isotrope.diagnostics.audit.texts import TextAudit
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

if TYPE_CHECKING:
    from isotrope.diagnostics.audit.options import AuditSettings

_PARTNERS = 16  # of a row in the ledger
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
            f"{objective.name} {what}, so there is no push between rows to audit; audit the data "
            "with another objective, for example infonce"
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
            f"objective {objective.name} takes no hard negatives, but {name} has them; name two "
            "columns, or choose infonce"
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
    """Audit rows with their embeddings, of the encoder of a name.

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
    """Audit pictures with their embeddings; ``method`` is the name of that which made the views.

    ``objective`` is a :func:`checked_objective`; an encoder from ``scratch`` is not trained.
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
    """Return the push ledger, and the fields of an audit that embeddings are enough for."""
    size, seed = settings.batch_size, settings.seed
    book = ledger(embedded, objective, keep=keep, seed=seed, progress=progress)
    pairs = mutual(book)
    suspects = int((pairs.push >= settings.suspect).sum())
    _, first, group = np.unique(embedded.groups.numpy(), return_index=True, return_inverse=True)
    same = np.stack([first[group], np.arange(len(embedded))], axis=1)
    rows = settings_table(embedded, objective, batch_size=size, seed=seed)
    return book, {
        "objective": objective,
        "batch_size": size,
        "settings": rows,
        "recommendations": recommend(rows),
        "mutual": pairs,
        "suspects": suspects,
        "groups": groups_of(np.concatenate([pairs.rows[:suspects], same]), len(embedded)),
        "found": find_pairs(embedded, objective, batch_size=size, seed=seed),
    }
