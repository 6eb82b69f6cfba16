"""VICReg: two crops, a wide head, and a loss with variance, invariance and covariance terms."""

from dataclasses import dataclass
from typing import Annotated

from isotrope.core.hyper import Hyper, Paper
from isotrope.encoders.heads import projector
from isotrope.training.images.barlow_twins import BarlowTwinsOptions
from isotrope.training.images.method import ImageMethod, Options
from isotrope.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class VICRegOptions(BarlowTwinsOptions):
    """The head of VICReg."""

    layers: Annotated[int, Hyper("", "number of layers of the head", at_least=1, at_most=4)] = 3


class VICRegMethod(ImageMethod):
    r"""Pull views together, keep the variance of each dimension, and remove covariances.

    Pairs of views: x and x' are two random crops of an image, f is the encoder and g the head. The
    objective gets one pair for each image, z = g(f(x)) and z' = g(f(x')). Gradients flow through z
    and z', which are not normalised (``space="raw"``).

    Heads: g has three linear layers of width 2048, with batch normalisation and ReLU between the
    layers. The last layer has no bias, as in Bardes et al. Their layers have width 8192.

    Target update: There is no target network.

    Recipe: Bardes et al. multiply the invariance (distance of the views) by 25, the variance by 25
    and the covariance by 1. Their code averages the invariance over the D dimensions and the
    variance over the two views. isotrope computes sums instead of these means, so sim_coeff is 25 /
    D and var_coeff is 25 / 2. The other settings are those of Manna et al., 2023, for other methods
    on CIFAR, with half of the learning rate. Bardes et al. use LARS, learning rate 0.2 at batch
    size 256, and weight decay 1e-6 except on biases and norms.

    Ours: The learning rate is half of that of Manna et al., and the warm-up takes 10 epochs,
    because the loss has no upper bound without normalisation.

    Reference: Bardes et al., 2022, algorithm 1 and section 4.2.
    """

    name = "vicreg"
    paper = Paper(
        "VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning",
        "Bardes et al., 2022",
        "Bardes et al., 2022, algorithm 1, eq. 1-6",
    )
    recipe = Recipe(
        objective="vicreg",
        objective_settings={"vicreg": {"space": "raw", "var_coeff": 12.5, "cov_coeff": 1.0}},
        augment="vicreg",
        learning_rate=0.03,
        warmup_epochs=10,
        source="Bardes et al., 2022; CIFAR benchmark of the library `lightly`",
    )
    options_class = VICRegOptions
    options: VICRegOptions

    @classmethod
    def settings_of(cls, objective: str, options: Options) -> dict[str, float | str]:
        """Return the recipe's hyperparameters, with ``sim_coeff`` for the dimension of the head."""
        settings = super().settings_of(objective, options)
        if objective == "vicreg":
            assert isinstance(options, VICRegOptions)
            settings["sim_coeff"] = 25.0 / options.dimension
        return settings

    def build(self) -> None:
        """Make the head."""
        d, norm = self.options.dimension, self.options.batch_norm
        hidden = [d] * (self.options.layers - 1)
        self.projector = projector(self.encoder.dimension, hidden, d, batch_norm=norm, bias=False)
