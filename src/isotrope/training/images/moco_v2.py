"""MoCo v2: the positive is a moving average's view, the negatives a queue of earlier ones."""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from isotrope.core.distributed import GlobalBatch
from isotrope.core.errors import InputError
from isotrope.core.hyper import Hyper, Paper
from isotrope.core.views import Views
from isotrope.encoders.heads import projector
from isotrope.encoders.momentum import Momentum, Queue
from isotrope.paradigm.objective import Objective
from isotrope.training.images.method import ImageMethod, Options
from isotrope.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class MoCoV2Options(Options):
    """Queue, moving average and head of MoCo v2."""

    queue: Annotated[int, Hyper("q", "rows of the queue", at_least=2)] = 4096
    decay: Annotated[float, Hyper("", "decay of the key encoder", at_least=0, at_most=1)] = 0.99
    symmetric: Annotated[bool, Hyper("", "use each crop once as query")] = True
    hidden: Annotated[int, Hyper("", "width of the head's hidden layer", at_least=1)] = 512
    dimension: Annotated[int, Hyper("d", "dimension that the objective sees", at_least=2)] = 128
    batch_norm: Annotated[bool, Hyper("", "batch normalisation in the head")] = False


class MoCoV2(ImageMethod):
    r"""Queries are compared with keys of a slowly moving encoder; older keys are the negatives.

    Pairs of views: (q, sg[k'], Q), and where it is symmetric (q', sg[k], Q): q = g(f(x)) the query,
    k' the key that the moving averages of f and g make of the other crop, Q the rows of the queue.
    Rows of the batch do not push each other (``in_batch=False``). The keys of both crops enter the
    queue after the step, those of all processes in the order of the batch.

    Heads: linear, ReLU, linear: d - 512 - 128; ``batch_norm`` puts a normalisation after either
    layer.

    Target update: theta' <- m theta' + (1 - m) theta, m = 0.99, after each step, parameters only.

    Recipe: Manna et al., 2023, section 3.2 (lightly's CIFAR benchmark): SGD, learning rate 0.06 at
    a batch of 128, weight decay 5e-4 on everything, 200 epochs, cosine without warm-up, InfoNCE
    with temperature 0.07. Chen et al. have 65,536 keys, m = 0.999, temperature 0.2 and learning
    rate 0.03.

    Ours: queue 4,096, m = 0.99 and the symmetric loss are from the benchmark and from MoCo's own
    CIFAR notebook, because Draganov et al. and Manna et al. do not print them. (There the two terms
    are added, not averaged, and the notebook's queue takes the keys of both.) Batch normalisation
    is not shuffled, because its statistics are those of the whole batch on any number of processes;
    the benchmark normalises eighths of a batch. The crops are SimCLR's, as there; ``--augment
    mocov2`` has those of the paper.

    Reference: He et al., 2020, algorithm 1; Chen et al., 2020.
    """

    name = "mocov2"
    paper = Paper(
        "Improved Baselines with Momentum Contrastive Learning",
        "Chen, Fan, Girshick and He, 2020",
        "He et al., 2020, algorithm 1; Draganov et al., 2024, table 4; Manna et al., 2023, table 2",
    )
    recipe = Recipe(
        objective="infonce",
        objective_settings={
            name: {"temperature": 0.07} for name in ("infonce", "dcl", "dclw", "ntxent")
        },
        augment="simclr",
        source="Manna et al., 2023, section 3.2; small-image benchmark of lightly",
    )
    options_class = MoCoV2Options
    options: MoCoV2Options

    @classmethod
    def check_objective(cls, objective: Objective) -> None:
        """Refuse an objective that cannot use a queue: compute it once against a queue of noise."""
        noise = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))
        try:
            objective.loss(Views(noise[0], noise[1], noise[2], in_batch=False))
        except ValueError as error:
            raise InputError(
                f"objective {objective.name} cannot push against a queue alone, as mocov2 does "
                f"({error}); choose infonce, or mocov3, which has no queue"
            ) from error

    def build(self) -> None:
        """Make the head, the key encoder and the queue."""
        d, norm = self.options.dimension, self.options.batch_norm
        self.projector = projector(
            self.encoder.dimension,
            [self.options.hidden],
            d,
            batch_norm=norm,
            last_norm="affine" if norm else "none",
        )
        self.target = Momentum(self._online(), self.options.decay)
        self.queue = Queue(self.options.queue, d, self.seed)
        self._keys: list[Tensor] = []

    def _online(self) -> nn.Module:
        return nn.Sequential(self.encoder, self.projector)

    def views(self, crops: list[Tensor]) -> list[Views]:
        """Return queries with the other crop's keys."""
        pairs = [crops, crops[::-1]] if self.options.symmetric else [crops]
        return [
            Views(self.projector(self.features(x)), self.targets(self.target, other))
            for x, other in pairs
        ]

    def completed(self, wholes: list[GlobalBatch]) -> list[GlobalBatch]:
        """Return the terms with the queue, and keep the keys of all processes for it."""
        # the first crop's keys belong to the last term
        self._keys = [whole.views.positives.detach() for whole in reversed(wholes)]
        rows = self.queue.rows.to(wholes[0].views.anchors.dtype)
        return [w._replace(views=replace(w.views, negatives=rows, in_batch=False)) for w in wholes]

    def after_step(self) -> None:
        """Move the key encoder, and let the keys into the queue."""
        self.target.update(self._online())
        self.queue.push(torch.cat(self._keys))
        self._keys = []
