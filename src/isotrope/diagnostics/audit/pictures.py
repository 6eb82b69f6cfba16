"""The result of an audit of pictures; anchor and positive are two crops of a picture.

The audit writes no files to train on, because trainings on pictures have no groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isotrope.core.table import TitledTable
from isotrope.diagnostics.audit.result import Audit
from isotrope.paradigm import registry

_WHY_NONE_IF_TRAINED = (
    "the rules for recommendations were made for texts. On pictures, these rules recommended a "
    "temperature with which a training collapsed"
)
_WHY_NONE_FROM_SCRATCH = (
    "audit a trained encoder instead (--encoder RUN), because measurements with random weights "
    "predict little"
)


@dataclass(frozen=True)
class AuditedPictures:
    """The pictures of a training: their names, labels and hashes.

    Attributes:
        name: Name of the data, for the title of the audit, such as ``cifar10``.
        names: Paths of n files in the folder. If the pictures are arrays, numbers from 0.
        labels: Class of each picture, int64 (n); None if the data have no labels.
        marks: Hashes, uint64 (n); pictures with the same pixels have the same hash.
        skipped: Number of files that were left out because they are not readable pictures.
    """

    name: str
    names: Sequence[int | str]
    labels: NDArray[np.int64] | None
    marks: NDArray[np.uint64]
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, repr=False, kw_only=True)
class PictureAudit(Audit):
    """The effect of an objective on pictures at the first step of a training.

    Attributes:
        method: Name of the training method (such as simclr) that crops the pictures.
        scratch: Whether the encoder is randomly initialised.
    """

    pictures: AuditedPictures
    method: str
    scratch: bool

    meanings: ClassVar[Mapping[str, str]] = {
        "apart": "one crop is nearer to most other pictures than to the picture's other crop",
        "repeated": "an earlier picture has the same pixels",
        "solved": "nothing is left to learn at the first step",
    }

    @property
    def names(self) -> Sequence[int | str]:
        """The path or the number of each picture."""
        return self.pictures.names

    @property
    def title(self) -> str:
        """One line on the audited data, encoder and objective."""
        return (
            f"{len(self.pictures):,} pictures of {self.pictures.name}, {self.encoder}, "
            f"{self.method} with {self.objective.name}, batches of {self.batch_size}"
        )

    @property
    def flags(self) -> str:
        """Flags of ``isotrope train-images`` that choose the audited method and objective."""
        # all settings, because the default of a setting there is the method's, not the objective's
        return f"--method {self.method} {self._flags_of(registry.as_settings(self.objective)[1])}"

    @property
    def same_label(self) -> dict[str, float | None] | None:
        """Shares of pairs with equal labels, as a dict; None if the data have no labels.

        ``all``: share among all pairs. ``listed``: share among the likely false negatives; None if
        there are no likely false negatives.
        """
        labels = self.pictures.labels
        if labels is None:
            return None
        n, sizes = len(labels), np.unique(labels, return_counts=True)[1]
        pairs = labels[self.alike.rows[: self.suspects]]
        listed = float((pairs[:, 0] == pairs[:, 1]).mean()) if self.suspects else None
        return {"listed": listed, "all": float((sizes * (sizes - 1)).sum() / (n * (n - 1)))}

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, as in ``audit.json``."""
        return {
            "data": self.pictures.name,
            "rows": len(self.pictures),
            "method": self.method,
            "scratch": self.scratch,
            **super().to_dict(),
            "same_label": self.same_label,
            "skipped": self.pictures.skipped,
        }

    def tables(self) -> list[TitledTable]:
        """Return the tables for terminal and page."""
        withheld = _WHY_NONE_FROM_SCRATCH if self.scratch else _WHY_NONE_IF_TRAINED
        checked, skipped, share = "", "", self.same_label
        if share is not None and share["listed"] is not None:
            checked = (
                f"{share['listed']:.0%} of the likely false negatives are pairs with equal labels. "
                f"Among all pairs, this share is {share['all']:.0%}."
            )
        if count := self.pictures.skipped:
            skipped = f"Files skipped because they are not readable pictures: {count:,}."
        return [
            self._settings_table(self.flags, withheld=withheld),
            self._pairs_table("pictures", note=checked),
            self._unusual_table("pictures", "which", skipped),
        ]
