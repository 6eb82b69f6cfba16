"""SimCLR: two crops pass through one encoder and a small head; any objective can be used."""

from dataclasses import dataclass
from typing import Annotated, Literal

from isotrope.core.hyper import Hyper, Paper
from isotrope.encoders.heads import projector
from isotrope.training.images.method import ImageMethod, Options
from isotrope.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class SimCLROptions(Options):
    """The head of SimCLR."""

    hidden: Annotated[int, Hyper("", "width of the head's hidden layer", at_least=1)] = 512
    dimension: Annotated[int, Hyper("d", "dimension of the head's output", at_least=2)] = 128
    batch_norm: Annotated[bool, Hyper("", "batch normalisation in the head")] = False


class SimCLR(ImageMethod):
    r"""Views of one image attract each other, and views of different images repel each other.

    Pairs of views: x and x' are two random crops of an image, f is the encoder and g the head. The
    objective gets one pair for each image, z = g(f(x)) and z' = g(f(x')). Gradients flow through z
    and z'. Manna et al., 2023, train DCL, DCLW and MIO with this method; Draganov et al., 2024,
    train InfoNCE.

    Heads: g is a linear layer of width 512, a ReLU and a linear layer of width 128. ``batch_norm``
    adds a batch normalisation after each linear layer, as in Chen et al. The code of Draganov et
    al., 2025 ("On the Importance of Embedding Norms in Self-Supervised Learning") and ``lightly``'s
    benchmark have none in the head.

    Target update: There is no target network.

    Recipe: Manna et al., 2023, section 3.2, and the CIFAR benchmark of the Python library
    ``lightly`` use this recipe. For STL-10 and Tiny-ImageNet, Manna et al. use learning rate 0.03.
    The code of Draganov et al., 2025, has temperature 0.5, learning rate 0.6 and weight decay 1e-6
    at batch size 256.

    Ours: Manna et al. do not give the momentum of SGD; 0.9 is from the benchmark. The learning rate
    changes at each step, not at each epoch.

    Reference: Chen et al., 2020, algorithm 1.
    """

    name = "simclr"
    paper = Paper(
        "A Simple Framework for Contrastive Learning of Visual Representations",
        "Chen et al., 2020",
        "Chen et al., 2020, algorithm 1; Manna et al., 2023, section 3.2",
    )
    recipe = Recipe(
        objective="ntxent",
        objective_settings={
            name: {"temperature": 0.1} for name in ("ntxent", "infonce", "dcl", "dclw")
        }
        | {name: {"temperature": 0.2} for name in ("miov1", "miov2", "miov3")},
        augment="simclr",
        learning_rate=0.06,
        weight_decay=5e-4,
        batch_size=128,
        epochs=200,
        source="Manna et al., 2023, section 3.2; CIFAR benchmark of the library `lightly`",
    )
    options_class = SimCLROptions
    options: SimCLROptions

    def build(self) -> None:
        """Make the head."""
        d, norm = self.options.dimension, self.options.batch_norm
        last: Literal["affine", "none"] = "affine" if norm else "none"
        self.projector = projector(
            self.encoder.dimension, [self.options.hidden], d, batch_norm=norm, last_norm=last
        )
