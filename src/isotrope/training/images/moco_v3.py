"""MoCo v3: queries predict the keys of a momentum encoder; the negatives are other images' keys.

``byol`` pairs the same embeddings without negatives; ``moco_v2`` takes negatives from a queue.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from isotrope.core.hyper import Hyper, Paper
from isotrope.core.views import Views
from isotrope.encoders.heads import predictor, projector
from isotrope.encoders.image_nets import freeze_patches
from isotrope.encoders.momentum import Momentum
from isotrope.training.images.method import ImageMethod, Options
from isotrope.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class MoCoV3Options(Options):
    """Heads and moving average of MoCo v3."""

    layers: Annotated[int, Hyper("", "number of projector layers", at_least=1, at_most=4)] = 3
    hidden: Annotated[int, Hyper("", "width of the heads' hidden layers", at_least=1)] = 1024
    dimension: Annotated[int, Hyper("d", "dimension of the heads' output", at_least=2)] = 256
    batch_norm: Annotated[bool, Hyper("", "batch normalisation in the heads")] = True
    decay: Annotated[
        float, Hyper("", "decay m of the key encoder at the first step", at_least=0, at_most=1)
    ] = 0.99
    rising: Annotated[bool, Hyper("", "whether the decay m rises to 1 along a cosine")] = True
    frozen_patches: Annotated[
        bool, Hyper("", "whether to freeze a vision transformer's patch projection")
    ] = True


class MoCoV3(ImageMethod):
    r"""Predict a momentum encoder's embedding of the other crop; other images are negatives.

    Pairs of views: x and x' are two random crops of an image, f is the encoder, g the projector and
    q the predictor. f' and g' are moving averages of f and g, and sg stops the gradient. The
    objective gets two pairs per image: the query q(g(f(x))) with the key sg[g'(f'(x'))], and the
    same with x and x' exchanged. The negatives are the keys of all other images on all processes.
    Chen et al. add the two losses and multiply the sum by 2 tau, where tau is the temperature; here
    the sum is halved.

    Heads: The projector has linear layers of widths 1024, 1024 and 256, the predictor of widths
    1024 and 256. Batch normalisation and ReLU are between the layers, and a batch normalisation
    without scale and shift is at the end. Chen et al. use a width of 4096, and two layers in the
    projector of a ResNet.

    Target update: After each step, theta' <- m theta' + (1 - m) theta, where m rises from 0.99 to 1
    along a cosine.

    Recipe: The recipe is that of Chen et al., section 4 and appendix A. A vision transformer's
    patch projection is not trained. For ResNets, the paper uses LARS: set ``--optimizer lars``,
    ``--learning-rate`` to 0.3 times batch size / 256, and ``--weight-decay 1.5e-6``. With ``lars``,
    biases and norms have no weight decay.

    Ours: The heads are narrower than those of Chen et al. By default, there are 200 epochs, not
    300, with the same share of warm-up. Chen et al. have larger batches, of 4,096 images.

    Reference: Chen, Xie and He, 2021, algorithm 1.
    """

    name = "mocov3"
    paper = Paper(
        "An Empirical Study of Training Self-Supervised Vision Transformers",
        "Chen, Xie and He, 2021",
        "Chen, Xie and He, 2021, algorithm 1; Draganov et al., 2024, table 4",
    )
    recipe = Recipe(
        objective="infonce",
        objective_settings={name: {"temperature": 0.2} for name in ("infonce", "dcl", "ntxent")},
        augment="mocov3",
        optimizer="adamw",
        learning_rate=7.5e-5,
        weight_decay=0.1,
        epochs=200,
        warmup_epochs=27,
        source="Chen, Xie and He, 2021, section 4 and appendix A",
    )
    options_class = MoCoV3Options
    options: MoCoV3Options

    def build(self) -> None:
        """Make the heads and the key encoder."""
        options, norm = self.options, self.options.batch_norm
        if options.frozen_patches:
            freeze_patches(self.encoder)
        last: Literal["plain", "none"] = "plain" if norm else "none"
        d, inner = options.dimension, [options.hidden] * (options.layers - 1)
        self.projector = projector(
            self.encoder.dimension, inner, d, batch_norm=norm, last_norm=last
        )
        self.predictor = predictor(d, options.hidden, batch_norm=norm, last_norm=last)
        self.target = Momentum(nn.Sequential(self.encoder, self.projector), options.decay)

    def views(self, crops: list[Tensor]) -> list[Views]:
        """Return two pairs: the queries of each crop, and the keys of the other crop."""
        q1, q2 = (self.predictor(self.projector(self.features(crop))) for crop in crops)
        k1, k2 = (self.targets(self.target, crop) for crop in crops)
        return [Views(q1, k2), Views(q2, k1)]

    def after_step(self) -> None:
        """Update the key encoder."""
        self.follow(self.target, self.projector, rising=self.options.rising)
