"""SimSiam: predicts the projection of the other crop; no gradient flows through the target."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from isotrope.core.hyper import Hyper, Paper
from isotrope.core.views import Views
from isotrope.encoders.heads import predictor, projector
from isotrope.training.images.method import ImageMethod, Options
from isotrope.training.optimisers import OwnRate
from isotrope.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class SimSiamOptions(Options):
    """Heads of SimSiam, and its predictor's learning rate."""

    layers: Annotated[int, Hyper("", "number of projector layers", at_least=1, at_most=4)] = 2
    dimension: Annotated[int, Hyper("d", "dimension of the heads' output", at_least=2)] = 2048
    bottleneck: Annotated[int, Hyper("", "width of the predictor's hidden layer", at_least=1)] = 512
    batch_norm: Annotated[bool, Hyper("", "batch normalisation in the heads")] = True
    constant: Annotated[bool, Hyper("", "keep the predictor's learning rate constant")] = False
    predictor_rate: Annotated[
        float, Hyper("", "predictor's learning rate, divided by that of all other parts", above=0)
    ] = 1.0


class SimSiam(ImageMethod):
    r"""BYOL without the moving average: a predictor and a stopped gradient prevent collapse.

    Pairs of views: x and x' are two random crops of an image, f is the encoder, g the projector and
    q the predictor. sg stops the gradient. The negative cosine gets two pairs for each image:
    q(z) with sg[z'], and q(z') with sg[z], where z = g(f(x)) and z' = g(f(x')).

    Heads: The projector has two linear layers of width 2048, with batch normalisation after each
    layer. The last batch normalisation has no scale and shift. The predictor has linear layers of
    widths 512 and 2048, with batch normalisation after the first layer. On ImageNet, Chen and He
    use three layers in the projector (``layers=3``).

    Target update: There is no target network.

    Recipe: Manna et al., 2023, section 3.2, and the CIFAR benchmark of the Python library
    ``lightly`` use this recipe. On CIFAR-10, Chen and He use learning rate 0.03 times batch size /
    256 (appendix D). The code of Draganov et al., 2025, has learning rate 0.2 at batch
    size 1024, and accumulates the gradient over 8 parts of a batch.

    Ours: The learning rate of the predictor decays like that of the other parameters, as in the
    benchmark. With ``constant``, this rate does not decay, as in section 4.2 of Chen and He for
    ImageNet. ``predictor_rate`` is the predictor's learning rate divided by that of the other
    parameters (alpha_p in Tian et al., 2021). The crops are those of SimCLR. ``--augment simsiam``
    uses the crops of Chen and He.

    Reference: Chen and He, 2021, algorithm 1.
    """

    name = "simsiam"
    paper = Paper(
        "Exploring Simple Siamese Representation Learning",
        "Chen and He, 2021",
        "Chen and He, 2021, algorithm 1; Draganov et al., 2024, table 3; "
        "Manna et al., 2023, table 2",
    )
    recipe = Recipe(
        objective="negativecosine",
        augment="simclr",
        scaled=False,
        source="Manna et al., 2023, section 3.2; CIFAR benchmark of the library `lightly`",
    )
    options_class = SimSiamOptions
    options: SimSiamOptions

    def build(self) -> None:
        """Make the heads."""
        d, norm = self.options.dimension, self.options.batch_norm
        last: Literal["plain", "none"] = "plain" if norm else "none"
        hidden = [d] * (self.options.layers - 1)
        self.projector = projector(
            self.encoder.dimension, hidden, d, batch_norm=norm, last_norm=last
        )
        self.predictor = predictor(d, self.options.bottleneck, batch_norm=norm)
        self.own_rate = OwnRate(self.predictor, self.options.predictor_rate, self.options.constant)

    def views(self, crops: list[Tensor]) -> list[Views]:
        """Return one pair for each crop: its prediction, and the other's detached projection."""
        z, other = (self.projector(self.features(crop)) for crop in crops)
        return [Views(self.predictor(z), other.detach()), Views(self.predictor(other), z.detach())]
