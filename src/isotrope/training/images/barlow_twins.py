"""Barlow Twins: two crops, a wide head, and an objective that decorrelates embeddings."""

from dataclasses import dataclass
from typing import Annotated

from isotrope.core.hyper import Hyper, Paper
from isotrope.encoders.heads import projector
from isotrope.training.images.method import ImageMethod, Options
from isotrope.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class BarlowTwinsOptions(Options):
    """Options of the projection head of Barlow Twins and of VICReg."""

    layers: Annotated[int, Hyper("", "number of layers of the head", at_least=1, at_most=4)] = 2
    dimension: Annotated[int, Hyper("D", "width of all layers of the head", at_least=2)] = 2048
    batch_norm: Annotated[bool, Hyper("", "batch normalisation between the layers")] = True


class BarlowTwinsMethod(ImageMethod):
    r"""Bring the cross-correlation matrix of two views close to the identity, without negatives.

    Pairs of views: x and x' are two random crops of an image, f is the encoder and g the head. The
    objective gets one pair for each image, z = g(f(x)) and z' = g(f(x')). Gradients flow through z
    and z'. The objective standardises each dimension over the batch of all processes.

    Heads: g has two linear layers of width 2048, with batch normalisation and ReLU between the
    layers. Zbontar et al. use three linear layers (``layers=3``) of width 8192.

    Target update: There is no target network.

    Recipe: Manna et al., 2023, section 3.2, and the CIFAR benchmark of the Python library
    ``lightly`` use this recipe. As in Zbontar et al., the off-diagonal term has weight nu = 0.0051.
    Zbontar et al. train with LARS and multiply the loss by 0.024.

    Ours: The crops are SimCLR's, as in the benchmark. ``--augment barlow`` uses the paper's crops.

    Reference: Zbontar et al., 2021, algorithm 1.
    """

    name = "barlowtwins"
    paper = Paper(
        "Barlow Twins: Self-Supervised Learning via Redundancy Reduction",
        "Zbontar et al., 2021",
        "Zbontar et al., 2021, algorithm 1; Manna et al., 2023, table 2",
    )
    recipe = Recipe(
        objective="barlowtwins",
        objective_settings={"barlowtwins": {"space": "batchnorm", "weight": 0.0051}},
        augment="simclr",
        source="Manna et al., 2023, section 3.2; CIFAR benchmark of the library `lightly`",
    )
    options_class = BarlowTwinsOptions
    options: BarlowTwinsOptions

    def build(self) -> None:
        """Make the head."""
        d, norm = self.options.dimension, self.options.batch_norm
        hidden = [d] * (self.options.layers - 1)
        self.projector = projector(self.encoder.dimension, hidden, d, batch_norm=norm)
