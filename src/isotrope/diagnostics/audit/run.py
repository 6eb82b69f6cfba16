"""Audits embedded rows: settings, push ledger, unusual rows, hard negatives."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.diagnostics.audit.mining import mine as mined
from isotrope.diagnostics.audit.pairs import find_pairs, find_texts, repeated
from isotrope.diagnostics.audit.pictures import AuditedPictures, PictureAudit
from isotrope.diagnostics.audit.push import Ledger, groups_of, ledger, mutual
from isotrope.diagnostics.audit.rows import Embedded, EmbeddedTexts, PairedRows
from isotrope.diagnostics.audit.settings import recommend, settings_table
from isotrope.diagnostics.audit.texts import TextAudit
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

_PARTNERS = 16  # of a row in the ledger
_MINED = 100  # hard negatives of a row, at most: memory grows with them
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

    Args:
        objective: Objective to train with.
        columns: 3 if records have hard negatives.
        name: The name of the data.
    """
    if objective.takes_negatives is False and columns == 3:
        raise InputError(
            f"objective {objective.name} takes no hard negatives, but {name} has them; name two "
            "columns, or choose infonce"
        )


def check_numbers(
    batch_size: int, suspect: float, mine: int = 0, hardness: float = 1.0, seed: int = 0
) -> None:
    """Refuse numbers out of range, before anything is embedded."""
    if batch_size < 2:
        raise InputError(
            f"a batch of {batch_size} has no negatives; give a batch size of 2 or more"
        )
    if not suspect > 0:
        raise InputError(f"suspect is a push above 0; found {suspect:g}")
    if not 0 <= mine <= _MINED:
        raise InputError(f"mine is a number of negatives, 0 to {_MINED}; found {mine}")
    if not 0 <= seed < 2**32:
        raise InputError(f"a seed is 0 or more, and below 2^32; found {seed}")
    if not 0 < hardness <= 1:
        raise InputError(f"hardness is a share above 0 and at most 1; found {hardness:g}")


def audit_rows(
    rows: PairedRows,
    embedded: EmbeddedTexts,
    objective: Objective,
    *,
    encoder: str,
    uncovered: Mapping[str, Any],
    batch_size: int = 64,
    suspect: float = 0.1,
    mine: int = 0,
    hardness: float = 0.3,
    seed: int = 0,
    progress: bool = False,
) -> TextAudit:
    """Audit rows with their embeddings; arguments as for ``isotrope.audit``.

    Args:
        rows: the records.
        embedded: their embeddings.
        objective: The result of :func:`checked_objective`.
        encoder: Name of the encoder.
        uncovered: The gain from whitening.
        batch_size: rows of a batch in training.
        suspect: Reciprocal push above which two rows are likely false negatives.
        mine: hard negatives for each anchor.
        hardness: Largest share of the push on an anchor that one hard negative may have.
        seed: Seed of all random draws.
        progress: show bars on stderr.
    """
    book, common = _measured(
        embedded,
        objective,
        keep=max(_PARTNERS, _CHOICE * mine),
        batch_size=batch_size,
        suspect=suspect,
        seed=seed,
        progress=progress,
    )
    common["found"] |= find_texts(rows, embedded)
    return TextAudit(
        rows=rows,
        encoder=encoder,
        **common,
        uncovered=uncovered,
        mined=mined(book, common["groups"], mine, hardness=hardness) if mine else None,
    )


def audit_pictures(
    pictures: AuditedPictures,
    embedded: Embedded,
    objective: Objective,
    *,
    encoder: str,
    method: str,
    scratch: bool,
    batch_size: int = 128,
    suspect: float = 0.1,
    seed: int = 0,
    progress: bool = False,
) -> PictureAudit:
    """Audit pictures with their embeddings; arguments as for ``isotrope.audit_images``.

    Args:
        pictures: The pictures of the training.
        embedded: their embeddings.
        objective: The result of :func:`checked_objective`.
        encoder: Name of the encoder.
        method: Name of the method that made the views.
        scratch: whether the encoder is randomly initialised.
        batch_size: pictures of a batch in training.
        suspect: Reciprocal push above which two pictures are likely false negatives.
        seed: Seed of all random draws.
        progress: show bars on stderr.
    """
    _, common = _measured(
        embedded,
        objective,
        keep=_PARTNERS,
        batch_size=batch_size,
        suspect=suspect,
        seed=seed,
        progress=progress,
    )
    common["found"]["repeated"] = repeated(pictures.marks[:, None])
    common["recommendations"] = []  # the rules are those of texts
    return PictureAudit(
        pictures=pictures, encoder=encoder, method=method, scratch=scratch, **common
    )


def _measured(
    embedded: Embedded,
    objective: Objective,
    *,
    keep: int,
    batch_size: int,
    suspect: float,
    seed: int,
    progress: bool,
) -> tuple[Ledger, dict[str, Any]]:
    """Return the push ledger, and the fields of an audit that embeddings are enough for."""
    book = ledger(embedded, objective, keep=keep, seed=seed, progress=progress)
    pairs = mutual(book)
    suspects = int((pairs.push >= suspect).sum())
    _, first, group = np.unique(embedded.groups.numpy(), return_index=True, return_inverse=True)
    same = np.stack([first[group], np.arange(len(embedded))], axis=1)
    settings = settings_table(embedded, objective, batch_size=batch_size, seed=seed)
    return book, {
        "objective": objective,
        "batch_size": batch_size,
        "settings": settings,
        "recommendations": recommend(settings),
        "mutual": pairs,
        "suspects": suspects,
        "groups": groups_of(np.concatenate([pairs.rows[:suspects], same]), len(embedded)),
        "found": find_pairs(embedded, objective, batch_size=batch_size, seed=seed),
    }
