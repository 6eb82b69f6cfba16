"""DINO: a student learns the centred, sharpened output of a teacher, its own moving average."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from isotrope.core.distributed import all_reduce_sum
from isotrope.core.errors import InputError
from isotrope.core.hyper import Hyper, Paper
from isotrope.core.rounding import at_least_float
from isotrope.core.views import Views
from isotrope.data.images.augment import Augment, small_crop, two_views
from isotrope.encoders.heads import DINOHead
from isotrope.encoders.momentum import Momentum
from isotrope.objectives import dino
from isotrope.paradigm.objective import Objective
from isotrope.training.images.method import ImageMethod, Options
from isotrope.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class DINOOptions(Options):
    """Head, teacher and crops of DINO."""

    prototypes: Annotated[int, Hyper("K", "number of prototypes (logits)", at_least=2)] = 2048
    hidden: Annotated[int, Hyper("", "width of the head's hidden layers", at_least=1)] = 2048
    bottleneck: Annotated[int, Hyper("", "dimension of the prototypes", at_least=1)] = 256
    batch_norm: Annotated[bool, Hyper("", "batch normalisation in the head")] = False
    decay: Annotated[
        float, Hyper("", "decay m of the teacher at the first step", at_least=0, at_most=1)
    ] = 0.996
    rising: Annotated[bool, Hyper("", "whether the decay m rises to 1 along a cosine")] = True
    centre: Annotated[float, Hyper("", "decay of the centre c", at_least=0, at_most=1)] = 0.9
    first_temperature: Annotated[
        float, Hyper("", "teacher's temperature at the first step", at_least=1e-4)
    ] = 0.04
    warmup: Annotated[
        float,
        Hyper("", "share of steps in which the teacher's temperature rises", at_least=0, at_most=1),
    ] = 0.1
    frozen_epochs: Annotated[
        float, Hyper("", "number of epochs before the prototypes are trained", at_least=0)
    ] = 1.0
    local_crops: Annotated[
        int, Hyper("", "number of small crops; -1: as many as --augment has", at_least=-1)
    ] = -1


class DINOMethod(ImageMethod):
    r"""Self-distillation: the student sees all crops of an image, the teacher only the large ones.

    Pairs of views: The teacher t is a moving average of the student s. Both return a logit for each
    of K prototypes. The objective compares s(x_v) with sg[t(x_u) - c] for each large crop x_u and
    every other crop x_v. The centre c is a moving average of the teacher's logits, and sg stops the
    gradient. The teacher's logits are divided by a temperature, which rises in the first steps to
    the objective's ``teacher_temperature``.

    Heads: The head has linear layers of widths 2048, 2048 and 256, with GELU between the layers.
    The output is normalised. A logit is the cosine of this output and a prototype. The prototypes
    are not trained in the first epoch.

    Target update: After each step, theta' <- m theta' + (1 - m) theta, where m rises from 0.996 to
    1 along a cosine. The centre c becomes 0.9 c + 0.1 b, where b is the mean of the teacher's
    logits over both large crops of the batch on all processes. The teacher's temperature rises
    linearly from 0.04 to 0.07 in the first tenth of the training.

    Recipe: The recipe is that of Caron et al., section 3.2, appendix and released code. Caron et
    al. raise the teacher's temperature in the first 30 of 300 epochs.

    Ours: The norm of the whole gradient is clipped at 3; Caron et al. clip each tensor's gradient.
    There are 2,048 prototypes, which suit small images; the paper has 65,536. By default, there are
    8 small crops for images above 64 pixels, and none for smaller images. ``local_crops`` sets
    another number. Prototypes and crops are as in ``lightly``'s CIFAR benchmark.

    Reference: Caron et al., 2021, algorithm 1.
    """

    name = "dino"
    paper = Paper(
        "Emerging Properties in Self-Supervised Vision Transformers",
        "Caron et al., 2021",
        "Caron et al., 2021, algorithm 1; Draganov et al., 2024, table 4",
    )
    recipe = Recipe(
        objective="dino",
        objective_settings={"dino": {"teacher_temperature": 0.07}},
        augment="dino",
        optimizer="adamw",
        learning_rate=2.5e-4,
        last_learning_rate=1e-6,
        weight_decay=0.04,
        last_weight_decay=0.4,
        decay_all=False,
        warmup_epochs=10,
        clip=3.0,
        source="Caron et al., 2021, section 3.2 and released code",
    )
    options_class = DINOOptions
    options: DINOOptions
    objective: dino.DINO
    middle: Tensor  # the centre c; checkpoints have this name

    @classmethod
    def check_objective(cls, objective: Objective) -> None:
        """Refuse all objectives other than DINO's own, which takes logits of prototypes."""
        if not isinstance(objective, dino.DINO):
            raise InputError(
                f"choose another method for {objective.name}, such as byol or simclr: the method "
                "dino returns logits of prototypes, which only the objective dino takes"
            )

    @classmethod
    def augments_of(
        cls, size: int, options: Options, name: str | None = None
    ) -> tuple[Augment, ...]:
        """Return the augmentations of two large crops, and of ``local_crops`` small crops."""
        assert isinstance(options, DINOOptions)
        views = two_views(name or cls.recipe.augment, size)
        if options.local_crops < 0:
            return views
        small = views[2] if len(views) > 2 else small_crop(views[0])
        return *views[:2], *[small] * options.local_crops

    def build(self) -> None:
        """Make the head, the teacher and the centre."""
        self.head = DINOHead(
            self.encoder.dimension,
            self.options.prototypes,
            hidden=self.options.hidden,
            bottleneck=self.options.bottleneck,
            batch_norm=self.options.batch_norm,
        )
        self.teacher = Momentum(nn.Sequential(self.encoder, self.head), self.options.decay)
        self.register_buffer("middle", torch.zeros(self.options.prototypes))
        self._outputs: Tensor | None = None  # the teacher's logits, from views() to after_step()

    def views(self, crops: list[Tensor]) -> list[Views]:
        """Pair the student's logits of each crop with the teacher's logits of other large crops."""
        n, large, small = len(crops[0]), crops[:2], crops[2:]
        together = [torch.cat(same) for same in (large, small) if same]
        student = torch.split(self.head(torch.cat([self.features(x) for x in together])), n)
        # in float32, because the centre is a mean of many small numbers
        self._outputs = at_least_float(self.targets(self.teacher, together[0]))
        scale = self.objective.teacher_temperature / self.temperature_at(self.step)
        teacher = torch.split((self._outputs - self.middle) * scale, n)
        return [
            Views(student[v].to(teacher[u].dtype), teacher[u])
            for u in range(len(large))
            for v in range(len(crops))
            if u != v
        ]

    def temperature_at(self, step: int) -> float:
        """Return the teacher's temperature of a step."""
        first, last = self.options.first_temperature, self.objective.teacher_temperature
        steps = self.options.warmup * self.plan.steps
        return last if step >= steps else first + (last - first) * step / steps

    def after_backward(self) -> None:
        """Remove the gradient of the prototypes in the first ``frozen_epochs`` epochs."""
        if self.step < self.options.frozen_epochs * self.plan.steps_per_epoch:
            self.head.prototypes.weight.grad = None

    def after_step(self) -> None:
        """Update the teacher and the centre."""
        assert self._outputs is not None
        self.follow(self.teacher, self.head, rising=self.options.rising)
        rows = self._outputs.new_tensor(float(len(self._outputs)))
        mean = all_reduce_sum(self._outputs.sum(dim=0)) / all_reduce_sum(rows)
        self.middle.lerp_(mean.to(self.middle.dtype), 1 - self.options.centre)
        self._outputs = None
