"""The base class of all training methods on images. A method pairs the embeddings of crops.

In each step, encoder and heads embed random crops of the batch. The method returns one or more
``Views`` (pairs of embeddings, not normalised), and the optimiser reduces the mean loss of all
pairs. Then moving averages, queues and centres are updated; checkpoints contain them. The crops
depend on seed and step, not on the number of processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from isotrope.core import distributed
from isotrope.core.autograd import seeded
from isotrope.core.distributed import GlobalBatch, all_gather_views
from isotrope.core.hyper import Paper, check
from isotrope.core.rounding import at_least_float
from isotrope.core.views import Views
from isotrope.data.images.augment import Augment, two_views
from isotrope.data.images.batches import ImageBatch
from isotrope.diagnostics import observe
from isotrope.encoders.cut_initialize import TURN, cut_initialize, first_turn
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.momentum import Momentum
from isotrope.encoders.shared_norm import share_statistics
from isotrope.paradigm.loss_shares import shared_loss
from isotrope.paradigm.objective import Objective
from isotrope.training import optimisers
from isotrope.training.gradient_cache import cached, refuse_batch_statistics
from isotrope.training.progress import warn
from isotrope.training.recipe import Plan, Recipe
from isotrope.training.run import try_objective

_CROPS, _HEADS = -1, -2  # numbers of random streams; 0, 1, ... are those of the processes


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a method. Each method declares its options as fields of a subclass."""

    def __post_init__(self) -> None:
        """Check the values."""
        check(self)


class ImageMethod(nn.Module, ABC):
    """Encoder, heads, objective and optimiser of one run. Each subclass is a method, such as BYOL.

    A subclass defines ``name``, ``paper``, ``recipe`` and ``build``. It may also define
    ``options_class``, ``check_objective``, ``settings_of``, ``augments_of``, ``views``,
    ``completed``, ``after_backward`` and ``after_step``. If it does not define ``views``, ``build``
    sets ``projector``. Methods with a queue need ``completed``. The objective receives the output
    of the heads, not normalised.

    Args:
        encoder: Encoder to train in place. It maps pictures (n x 3 x S x S, in [0, 1]) to
            embeddings (n x d).
        objective: Objective to minimise; the method must be able to train it.
        plan: Settings of the optimiser; ``recipe.plan(...)`` returns the method's default plan.
        options: Options of the method; by default, ``options_class()``.
        augments: An augmentation for each crop; by default the augmentations of the recipe.
        seed: Seed of heads, queue, crops and dropout.
        log_every: Number of steps between measurements of the embeddings.
        caching: Number of images that pass through the encoder at a time, to save memory. With
            None, the whole batch passes at once; encoders with batch normalisation need this.
        scaled: Whether the trainer scales the loss, as training in float16 does.
        backend: Backend that computes the loss (``isotrope.kernels.choose``).

    Attributes:
        step: Number of the current step, from 0.
        steps: Number of steps of the run.
        learning_rate: Highest learning rate of the run.
        cut: Constant by which ``cut_heads`` divided the initial weights; 1 for no division.
        measured: Dict of the numbers of the last step; empty if this step was not logged.
        seen: The views from which the last loss was computed.
        gradient_norm: Norm of the gradient in the last step, before clipping.
        own_rate: Predictor with its own learning rate, or None. ``build`` may set it.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper]
    recipe: ClassVar[Recipe]
    options_class: ClassVar[type[Options]] = Options
    projector: nn.Module
    options: Options

    def __init__(
        self,
        *,
        encoder: ImageEncoder,
        objective: Objective,
        plan: Plan,
        options: Options | None = None,
        augments: Sequence[Augment] | None = None,
        seed: int = 0,
        log_every: int = 10,
        caching: int | None = None,
        scaled: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.check_objective(objective)
        self.backend = backend
        if caching is not None:
            refuse_batch_statistics(encoder.train())  # batch statistics matter in training mode
        self.encoder, self.objective, self.plan = encoder, objective, plan
        self.options = self.options_class() if options is None else options
        if augments is None:
            augments = self.augments_of(encoder.image_size, self.options)
        self.augments = tuple(augments)
        self.seed, self.log_every, self.caching, self.scaled = seed, log_every, caching, scaled
        self.step, self.steps, self.learning_rate = 0, plan.steps, plan.learning_rate
        self.measured: dict[str, float | None] = {}
        self.seen: list[Views] = []
        self.gradient_norm: float | None = None
        self.cut = 1.0
        self._features: Tensor | None = None
        self.own_rate: optimisers.OwnRate | None = None
        with seeded(optimisers.step_seed(seed, 0, _HEADS)):
            self.build()
        if distributed.world_size() > 1:
            share_statistics(self)

    # what a method's own file writes

    @classmethod
    def check_objective(cls, objective: Objective) -> None:
        """Refuse an objective that the method cannot train; by default, one that needs a queue."""
        try_objective(objective, negatives=False)

    @abstractmethod
    def build(self) -> None:
        """Make heads, moving averages and queues, with torch seeded by ``seed``."""

    def views(self, crops: list[Tensor]) -> list[Views]:
        """Return pairs of embeddings, not normalised; the loss is the mean over these pairs.

        ``crops`` has a tensor for each augmentation, with a crop of every image of the batch. By
        default, there is one pair (z, z'), the projections of two crops.
        """
        z, other = (self.projector(self.features(crop)) for crop in crops)
        return [Views(z, other)]

    def completed(self, wholes: list[GlobalBatch]) -> list[GlobalBatch]:
        """Return the pairs of views, gathered from all processes; a method may add negatives."""
        return wholes

    def after_backward(self) -> None:
        """Change the gradients of the step."""

    def after_step(self) -> None:
        """Update moving averages, queues and centres after the step."""

    @classmethod
    def settings_of(cls, objective: str, options: Options) -> dict[str, float | str]:
        """Return a dict of the recipe's hyperparameters for an objective."""
        return dict(cls.recipe.objective_settings.get(objective, {}))

    @classmethod
    def augments_of(
        cls, size: int, options: Options, name: str | None = None
    ) -> tuple[Augment, ...]:
        """Return an augmentation for each crop; by default, there are two large crops."""
        return two_views(name or cls.recipe.augment, size)[:2]

    # what a method may use

    def cut_heads(self, c: float, what: Literal["weights", "all"] = "weights") -> None:
        """Divide the initial weights of all modules except the encoder by c (``--cut``)."""
        self.cut = c
        parts = [*self.children()]
        while parts:
            part = parts.pop()
            # a momentum copy has an encoder and a head: only its head is divided
            if any(isinstance(inner, ImageEncoder) for inner in part.modules()):
                parts += [] if isinstance(part, ImageEncoder) else part.children()
            else:
                cut_initialize(part, c, what=what)

    def features(self, crops: Tensor) -> Tensor:
        """Return the encoder's pooled features (n x d), computed in parts with ``caching``."""
        features: Tensor
        if self.caching is None:
            features = self.encoder(crops)
        else:
            pieces = [(piece,) for piece in torch.split(crops, self.caching)]
            features = torch.cat(cached(self.encoder, pieces))
        self._features = features.detach()
        return features

    @torch.no_grad()
    def targets(self, target: Momentum, crops: Tensor) -> Tensor:
        """Apply a moving average of encoder and head to images, without gradients."""
        # the head gets the whole batch also with caching, because of batch normalisation
        encoder, head = target.module.children()
        pieces = torch.split(crops, self.caching or len(crops))
        projections: Tensor = head(torch.cat([encoder(piece) for piece in pieces]))
        return projections

    def follow(self, target: Momentum, head: nn.Module, *, rising: bool) -> None:
        """Update a moving average of encoder and head; with ``rising``, the decay rises to 1."""
        progress = self.step / self.plan.steps
        decay = optimisers.cosine(target.decay, 1.0, progress) if rising else target.decay
        target.update(nn.Sequential(self.encoder, head), decay)

    # the step

    def crops(self, batch: ImageBatch) -> list[Tensor]:
        """Return the crops of this process; the number of processes does not change the crops."""
        seed = optimisers.step_seed(self.seed, batch.step, _CROPS)
        generator = torch.Generator().manual_seed(seed)
        rows = distributed.rows_of(batch.size)
        return [
            augment.apply(batch.images, augment.draw(batch.size, generator).rows(rows))
            for augment in self.augments
        ]

    def forward(self, batch: ImageBatch) -> Tensor:
        """Return the loss of a batch; measure every ``log_every``-th batch and the last one.

        The loss is the mean over the pairs of views. Similarities are always computed in float32,
        because the division by the temperature magnifies rounding errors.
        """
        self.step = batch.step
        torch.manual_seed(optimisers.step_seed(self.seed, batch.step, distributed.rank()))
        views = self.views(self.crops(batch))
        wholes = self.completed([all_gather_views(pair.map(at_least_float)) for pair in views])
        self.seen = [whole.views.detached() for whole in wholes]
        with torch.autocast(wholes[0].views.anchors.device.type, enabled=False):
            losses = [shared_loss(self.objective, whole, backend=self.backend) for whole in wholes]
            loss = torch.stack(losses).mean()
            self.measured = {}
            if self.step % self.log_every == 0 or self.step == self.steps - 1:
                assert self._features is not None
                self.measured = measure(self.objective, self.seen[0], self._features)
                self.measured["loss"] = float(loss.detach())
        return loss

    def before_update(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Set learning rate and weight decay; warn at step 0 if cut-initialization may do harm."""
        # no step is skipped or repeated, even in a resumed run
        assert step == self.step, f"step {self.step} at {step} updates"
        optimisers.set_rates(optimizer, self.plan, self.step)
        rate = self.plan.learning_rate
        if self.step or self.cut <= 1 or self.plan.optimizer != "sgd":
            return
        turn = first_turn(self, rate)
        if turn > TURN:
            warn(
                f"warning: train without --cut {self.cut:g}, or with --learning-rate "
                f"{rate * TURN / turn:.1g}: the first step will turn the weights by {turn:.2g} "
                f"radians; above {TURN:g} radians, --cut lowered the scores in our trials"
            )

    def blend(self) -> None:
        """Do nothing: the trained weights are saved as they are."""

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.encoder.device

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        return optimisers.learning_rate_at(self.plan, step)

    def optimizer(self) -> torch.optim.Optimizer:
        """Return the optimiser of the run; ``before_update`` sets the learning rate of a step."""
        # a fused step divides float16 gradients by their scale, but only after clipping
        fused = not self.scaled
        return optimisers.build_optimizer(self, self.plan, own_rate=self.own_rate, fused=fused)


@torch.no_grad()
def measure(objective: Objective, views: Views, features: Tensor) -> dict[str, float | None]:
    """Return a dict with the logged numbers of a batch: ``observe.measure``, and ``norm_backbone``.

    ``norm_backbone`` is the mean norm of the encoder's features on all processes.
    """
    norms = torch.linalg.vector_norm(at_least_float(features), dim=1)
    count = torch.full_like(norms.sum(), len(norms))
    mean = float(distributed.all_reduce_sum(norms.sum()) / distributed.all_reduce_sum(count))
    return {**observe.measure(objective, views), "norm_backbone": mean}
