"""Lists the quantities to plot, by subject, with their columns of metrics.csv."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["QUANTITIES", "SECTIONS", "Line", "Quantity", "Section"]


@dataclass(frozen=True)
class Line:
    """One line of every run: its column, its name where a picture has several, its deviation.

    Attributes:
        column: of metrics.csv.
        name: in the key of the picture; empty where the runs have one line each.
        spread: the column of a standard deviation, drawn as a band around the line.
    """

    column: str
    name: str = ""
    spread: str = ""


@dataclass(frozen=True)
class Quantity:
    """One picture.

    Attributes:
        key: its name on the page, and of its files.
        title: its heading.
        note: how to read it, in one line.
        lines: what is drawn of every run, the second dotted.
        kind: ``course`` over the steps, drawn as running means; ``score`` over the steps, with its
            start and the model that was saved; ``path`` over another column, in the order of the
            steps.
        across: the column of the horizontal axis.
        floor: a value that the vertical axis always shows (0 of a share).
        least: no value is below it (0 of a length): the vertical axis does not go there,
        most: or above it (1 of a share).
        runs: the places of the runs that are drawn; None: of all.
        mark: a value with a dashed line of its own.
        logarithmic: whether values that span decades get a logarithmic axis.
        angular: whether values are angles, with ticks in multiples of pi.
    """

    key: str
    title: str
    note: str
    lines: tuple[Line, ...]
    kind: Literal["course", "score", "path"] = "course"
    across: str = "step"
    floor: float | None = None
    least: float | None = None
    most: float | None = None
    runs: frozenset[int] | None = None
    mark: float | None = None
    logarithmic: bool = False
    angular: bool = False

    @property
    def wide(self) -> bool:
        """Whether it takes two columns of the page."""
        return self.kind == "score"


@dataclass(frozen=True)
class Section:
    """Pictures of one subject: a heading, what they answer, the pictures."""

    title: str
    note: str
    quantities: tuple[Quantity, ...]


def _one(
    key: str, title: str, note: str, *, floor: float | None = None, most: float | None = None
) -> Quantity:
    """Return a picture with one line a run; key and column are the same, the floor the least."""
    return Quantity(key, title, note, (Line(key),), floor=floor, least=floor, most=most)


_SCORES = (
    Quantity(
        "dev",
        "Dev score",
        "Dashed: before training. Dot: the best step, which is the model that was saved.",
        (Line("dev"),),
        kind="score",
    ),
    Quantity(
        "knn",
        "kNN accuracy",
        "Dashed: before training. Dot: the last step, which is the model that was saved.",
        (Line("knn"),),
        kind="score",
        least=0.0,
        most=100.0,
    ),
    _one("loss", "Loss", "What is minimised; falls as training proceeds."),
    Quantity(
        "held_out_contrastive",
        "Held-out InfoNCE",
        "Where that of text that is not trained on turns and rises, training overfits.",
        (Line("held_out_contrastive", "held out"), Line("trained_contrastive", "trained on")),
    ),
)
_GRADIENT = (
    Quantity(
        "dissipation",
        "Gradient dissipation, GD",
        "How much of the gradient is still alive. Dead anchors learn nothing.",
        (Line("dissipation", "GD"), Line("dead", "dead anchors")),
        floor=0.0,
        least=0.0,
    ),
    _one(
        "hardest_share",
        "Weight on the hardest negative, W",
        "1 = only the hardest one is pushed.",
        floor=0.0,
        most=1.0,
    ),
    _one("ratio", "Ratio, R", "Pull to the positive per push from the negatives."),
    _one(
        "above_bound",
        "Ratio above its bound",
        "Share of live anchors that a step brings nearer to their positive.",
        floor=0.0,
        most=1.0,
    ),
    Quantity(
        "parts",
        "Pull and push",
        "Mean length of the two parts of an anchor's gradient.",
        (Line("gradient_alignment", "pull"), Line("gradient_uniformity", "push")),
        floor=0.0,
        least=0.0,
    ),
    _one(
        "false_negatives",
        "False negatives",
        "Share of anchors with a negative as near as their own positive.",
        floor=0.0,
        most=1.0,
    ),
)
_NORMS = (
    Quantity(
        "norm",
        "Embedding norm",
        "Mean length before normalisation.",
        (Line("norm", "what the objective sees"), Line("norm_backbone", "the features kept")),
        least=0.0,
        logarithmic=True,
    ),
    Quantity(
        "embedding_gradient",
        "Gradient on the embedding",
        "The gradient of an anchor's own loss; it shrinks as norms grow.",
        (Line("embedding_gradient"),),
        floor=0.0,
        least=0.0,
        logarithmic=True,
    ),
    Quantity(
        "gradient_norm",
        "Gradient norm",
        "Length of the gradient of all parameters.",
        (Line("gradient_norm"),),
        least=0.0,
        logarithmic=True,
    ),
)
_ANGLES = (
    Quantity(
        "angles",
        "Angles to positive and negatives",
        "Mean and one standard deviation. Apart is good. Dashed: a right angle.",
        (
            Line("positive_mean", "positive", "positive_std"),
            Line("negative_mean", "negatives", "negative_std"),
        ),
        floor=0.0,
        least=0.0,
        most=3.141592653589793,
        mark=1.5707963267948966,
        angular=True,
    ),
    Quantity(
        "distance_gap",
        "Distance gap",
        "How much farther than the positive the negatives lie.",
        (Line("distance_gap"),),
        floor=0.0,
    ),
    Quantity(
        "opposite_halves",
        "Opposite halves",
        "Share of pairs that are more than a right angle apart.",
        (
            Line("opposite_halves", "over \N{GREEK SMALL LETTER PI}/2"),
            Line("far_opposite", "over 7\N{GREEK SMALL LETTER PI}/8"),
        ),
        floor=0.0,
        least=0.0,
        most=1.0,
    ),
)
_SPREAD = (
    Quantity(
        "trajectory",
        "Uniformity over alignment",
        "From ring to dot; lower left is better on both.",
        (Line("uniformity"),),
        kind="path",
        across="alignment",
    ),
    _one(
        "effective_rank",
        "Effective rank",
        "Over how many directions the embeddings spread.",
        floor=0.0,
    ),
    _one(
        "std",
        "Deviation per dimension",
        "Of the normalised embeddings; near 0, they have collapsed to a point.",
        floor=0.0,
    ),
)

SECTIONS = (
    Section("Training", "Does it learn, and is the score still rising when it ends?", _SCORES),
    Section(
        "Gradient of one anchor",
        "How much it still teaches, which negatives it pushes, how hard it pulls.",
        _GRADIENT,
    ),
    Section("Norms", "Long embeddings get short gradients: training slows down.", _NORMS),
    Section("Angles", "Are positives nearer than negatives, and by how much?", _ANGLES),
    Section("Spread", "Do the embeddings use the space, or collapse?", _SPREAD),
)
QUANTITIES = tuple(quantity for section in SECTIONS for quantity in section.quantities)
