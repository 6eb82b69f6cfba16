"""MoCo v2: positives come from a moving average of the encoder, negatives from a queue."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from isotrope.core.distributed import GlobalBatch
from isotrope.core.errors import InputError, NoTerms
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

    queue: Annotated[int, Hyper("q", "number of keys in the queue", at_least=2)] = 4096
    decay: Annotated[float, Hyper("", "decay m of the key encoder", at_least=0, at_most=1)] = 0.99
    symmetric: Annotated[bool, Hyper("", "use both crops as queries")] = True
    hidden: Annotated[int, Hyper("", "width of the head's hidden layer", at_least=1)] = 512
    dimension: Annotated[int, Hyper("d", "dimension of the head's output", at_least=2)] = 128
    batch_norm: Annotated[bool, Hyper("", "batch normalisation in the head")] = False


class MoCoV2(ImageMethod):
    r"""Positives come from a momentum encoder, and negatives from a queue of earlier positives.

    Pairs of views: x and x' are two random crops of an image, f is the encoder and g the head. f'
    and g' are moving averages of f and g, and sg stops the gradient. The query is q = g(f(x)), and
    the key is k' = g'(f'(x')). Q is the queue of older keys. The anchor q has the positive sg[k']
    and the negatives Q. With ``symmetric``, there is a second pair, with x and x' exchanged. Other
    images of the batch are not negatives (``in_batch=False``). After the step, the keys of all
    processes are added to the queue, in the order of the batch.

    Heads: g is a linear layer of width 512, a ReLU and a linear layer of width 128. ``batch_norm``
    adds a batch normalisation after each linear layer.

    Target update: After each step, theta' <- m theta' + (1 - m) theta with m = 0.99. Only
    parameters are averaged: the batch normalisations of the target compute their own statistics.

    Recipe: Manna et al., 2023, section 3.2, and the CIFAR benchmark of the Python library
    ``lightly`` use this recipe. Chen et al. use a queue of 65,536 keys, m = 0.999, temperature 0.2
    and learning rate 0.03.

    Ours: Draganov et al. and Manna et al. give neither m nor the queue's size. A queue of 4,096
    keys, m = 0.99 and the symmetric loss are from the benchmark and from MoCo's CIFAR notebook. The
    notebook adds the losses of both directions; here they are averaged. Images are not shuffled
    among processes, because batch normalisation uses the statistics of the whole batch on all
    processes. The crops are those of SimCLR. ``--augment mocov2`` uses the crops of Chen et al.

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
        source="Manna et al., 2023, section 3.2; CIFAR benchmark of the library `lightly`",
    )
    options_class = MoCoV2Options
    options: MoCoV2Options

    @classmethod
    def check_objective(cls, objective: Objective) -> None:
        """Refuse an objective whose loss cannot be computed with negatives from a queue."""
        noise = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))
        try:
            objective.loss(Views(noise[0], noise[1], noise[2], in_batch=False))
        except (ValueError, NoTerms) as error:
            raise InputError(
                f"choose the objective infonce, or the method mocov3, which has no queue: "
                f"{objective.name} cannot be computed with only the negatives of a queue ({error})"
            ) from error

    def build(self) -> None:
        """Make the head, the key encoder and the queue."""
        d, norm = self.options.dimension, self.options.batch_norm
        last: Literal["affine", "none"] = "affine" if norm else "none"
        self.projector = projector(
            self.encoder.dimension, [self.options.hidden], d, batch_norm=norm, last_norm=last
        )
        self.target = Momentum(nn.Sequential(self.encoder, self.projector), self.options.decay)
        self.queue = Queue(self.options.queue, d, self.seed)
        self._keys: list[Tensor] = []

    def views(self, crops: list[Tensor]) -> list[Views]:
        """Return pairs of one crop's queries and the other crop's keys."""
        pairs = [crops, crops[::-1]] if self.options.symmetric else [crops]
        return [
            Views(self.projector(self.features(x)), self.targets(self.target, other))
            for x, other in pairs
        ]

    def completed(self, wholes: list[GlobalBatch]) -> list[GlobalBatch]:
        """Add the queue as negatives to each pair of views; store the new keys for the queue."""
        # the last pair has the keys of the first crop
        self._keys = [whole.views.positives.detach() for whole in reversed(wholes)]
        rows = self.queue.rows.to(wholes[0].views.anchors.dtype)
        return [w._replace(views=replace(w.views, negatives=rows, in_batch=False)) for w in wholes]

    def after_step(self) -> None:
        """Update the key encoder, and add the keys to the queue."""
        self.target.update(nn.Sequential(self.encoder, self.projector))
        self.queue.push(torch.cat(self._keys))
        self._keys = []
