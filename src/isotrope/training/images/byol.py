"""BYOL: predicts the other crop's projection, computed by a moving average of the network."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from isotrope.core.hyper import Hyper, Paper
from isotrope.core.views import Views
from isotrope.encoders.heads import predictor, projector
from isotrope.encoders.momentum import Momentum
from isotrope.training.images.method import ImageMethod, Options
from isotrope.training.optimisers import OwnRate
from isotrope.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class BYOLOptions(Options):
    """Heads and moving average of BYOL."""

    hidden: Annotated[int, Hyper("", "width of the heads' hidden layers", at_least=1)] = 1024
    dimension: Annotated[int, Hyper("d", "dimension of the heads' output", at_least=2)] = 256
    batch_norm: Annotated[bool, Hyper("", "batch normalisation in the heads")] = True
    last_norm: Annotated[bool, Hyper("", "batch normalisation after the projector")] = False
    predictor_rate: Annotated[
        float, Hyper("", "predictor's learning rate, divided by that of all other parts", above=0)
    ] = 1.0
    decay: Annotated[
        float, Hyper("", "decay m of the moving average at the first step", at_least=0, at_most=1)
    ] = 0.99
    rising: Annotated[bool, Hyper("", "whether the decay m rises to 1 along a cosine")] = False


class BYOL(ImageMethod):
    r"""From one crop, predict what a moving average of the network computes for the other crop.

    Pairs of views: x and x' are two random crops of an image, f is the encoder, g the projector and
    q the predictor. f' and g' are moving averages of f and g, and sg stops the gradient. The
    objective gets two pairs per image: q(g(f(x))) with sg[g'(f'(x'))], and the same with x and x'
    exchanged. The loss is the mean of the two negative cosines.

    Heads: Projector and predictor each have a linear layer of width 1024, batch normalisation, ReLU
    and a linear layer of width 256. ``last_norm`` adds a batch normalisation without scale and
    shift after the projector, as in the code of Draganov et al., 2025 (larger heads).

    Target update: After each step, theta' <- m theta' + (1 - m) theta with m = 0.99. Only
    parameters are averaged: the batch normalisations of the target compute their own statistics.
    With ``rising``, m rises to 1 along a cosine. On ImageNet, Grill et al. let m rise from 0.996 to
    1.

    Recipe: Manna et al., 2023, section 3.2, and the CIFAR benchmark of the Python library
    ``lightly`` use this recipe. Grill et al. use LARS, learning rate 0.2 at batch size 256, weight
    decay 1.5e-6 except on biases and norms, and heads of widths 4096 and 256.

    Ours: The crops are SimCLR's, as in the benchmark. ``--augment byol`` uses the crops of Grill et
    al. ``predictor_rate`` is the predictor's learning rate divided by that of the other parameters
    (alpha_p in Tian et al., 2021).

    Reference: Grill et al., 2020, section 3.1.
    """

    name = "byol"
    paper = Paper(
        "Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning",
        "Grill et al., 2020",
        "Grill et al., 2020, section 3.1, algorithm 1; Draganov et al., 2024, table 3; "
        "Manna et al., 2023, table 2",
    )
    recipe = Recipe(
        objective="negativecosine",
        augment="simclr",
        source="Manna et al., 2023, section 3.2; CIFAR benchmark of the library `lightly`",
    )
    options_class = BYOLOptions
    options: BYOLOptions

    def build(self) -> None:
        """Make the heads and the target."""
        hidden, d, norm = self.options.hidden, self.options.dimension, self.options.batch_norm
        last: Literal["plain", "none"] = "plain" if self.options.last_norm else "none"
        self.projector = projector(
            self.encoder.dimension, [hidden], d, batch_norm=norm, last_norm=last
        )
        self.predictor = predictor(d, hidden, batch_norm=norm)
        self.own_rate = OwnRate(self.predictor, self.options.predictor_rate)
        self.target = Momentum(nn.Sequential(self.encoder, self.projector), self.options.decay)

    def views(self, crops: list[Tensor]) -> list[Views]:
        """Return one pair for each crop: its prediction, and the target of the other crop."""
        p1, p2 = (self.predictor(self.projector(self.features(crop))) for crop in crops)
        t1, t2 = (self.targets(self.target, crop) for crop in crops)
        return [Views(p1, t2), Views(p2, t1)]

    def after_step(self) -> None:
        """Update the moving averages."""
        self.follow(self.target, self.projector, rising=self.options.rising)
