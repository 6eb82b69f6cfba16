"""The losses of the paper's tables: four that work, four that do not, and what was changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from isotrope.experiments.reproduce.artifact import Scale
from isotrope.experiments.reproduce.cell import Cell
from isotrope.experiments.reproduce.recipes import text_cells

__all__ = ["EFFECTIVE", "MODIFIED", "ORIGINAL", "Loss"]


@dataclass(frozen=True)
class Loss:
    """A row of table 3: its name there, and ours.

    Attributes:
        name: as printed.
        objective: in the registry.
        settings: of it: the paper's, or its released code's, for BERT-base.
        learning_rate: of the paper's own training.
        batch_size: likewise.
    """

    name: str
    objective: str
    settings: Mapping[str, float | str] = field(default_factory=dict)
    learning_rate: float = 1e-5
    batch_size: int = 128

    def cells(self, scale: Scale) -> list[Cell]:
        """Return its trainings, one for each seed."""
        own = {"learning_rate": self.learning_rate, "batch_size": self.batch_size}
        return text_cells(scale, self.objective, self.settings, **(own if scale == "paper" else {}))


EFFECTIVE = (
    Loss("InfoNCE", "infonce", {"temperature": 0.05}, 3e-5, 64),
    Loss("ArcCon", "arccon", {"temperature": 0.05, "margin": 0.17453292519943295}, 3e-5, 64),
    Loss("MPT", "mpt", {"margin": 0.23}, 1e-5, 64),
    Loss("MET", "met", {"margin": 0.45}, 1e-5, 128),
)
ORIGINAL = (
    Loss("MHE", "mhe", {"weight": 10.0}),
    Loss("MHS", "mhs", {}, 5e-6),
    Loss("Barlow Twins", "barlowtwinsgrad"),
    Loss("VICReg", "vicreggrad"),
)
MODIFIED = (
    Loss("mMHE", "modifiedmhe"),
    Loss("mMHS", "modifiedmhs"),
    Loss("mB", "modifiedbarlowtwins"),
    Loss("mV", "modifiedvicreg"),
)
