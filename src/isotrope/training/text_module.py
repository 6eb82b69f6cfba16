"""The encoder, its head, the losses and the optimiser of one training on text.

The trainer of sentence-transformers trains one ``SentenceTransformer`` with the encoder and the
head. The head exists only in training. ``Normalize`` modules are removed, because objectives
normalise the embeddings, and the norms are logged. Each data set has its own ``ObjectiveLoss``, or
a ``CachedObjectiveLoss`` with ``micro_batch``. The two views of a single text are two passes with
dropout (SimCSE: Gao et al., 2021). Random numbers depend only on seed, step and process, so a
resumed run has the same dropout masks. A loss of sentence-transformers may replace the objective;
it gets the embeddings as the saved model returns them, after the ``Normalize`` modules.
"""

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import Tensor, nn

from isotrope.adapters.sentence_transformers.losses import CachedObjectiveLoss, ObjectiveLoss
from isotrope.core.errors import InputError, SettingError, first_line, nearest
from isotrope.core.views import Views
from isotrope.data.records import Record
from isotrope.data.text.batches import Batch
from isotrope.data.text.tokens import TokenStore
from isotrope.diagnostics.observe import loss_column, measure
from isotrope.encoders.quiet import quiet_loading
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.paradigm.objective import Objective
from isotrope.training.early_checks import takes_scores
from isotrope.training.optimisers import build_optimizer, learning_rate_at, set_rates
from isotrope.training.progress import warn
from isotrope.training.recipe import Plan
from isotrope.training.settings import OF_SCORES, TrainSettings

OF_PAIRS = (
    *("MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss"),
    *("MultipleNegativesSymmetricRankingLoss", "CachedMultipleNegativesSymmetricRankingLoss"),
    *("GISTEmbedLoss", "CachedGISTEmbedLoss", "MegaBatchMarginLoss"),
)
"""Losses of pairs."""

OF_TWO_TEXTS = ("MegaBatchMarginLoss", *OF_SCORES[:3])
"""The losses of pairs and of scored pairs that take no hard negatives."""


class TrainingHead(nn.Module):
    """The head: the last module of the model in training, a network on top of the embeddings."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the features, with embeddings that the network has transformed."""
        return {**features, "sentence_embedding": self.network(features["sentence_embedding"])}


class TextModule(nn.Module):
    """The module that a run trains, with the logged numbers of a step.

    Args:
        settings: Settings of the run. A loss of sentence-transformers replaces the objectives.
        encoder: Encoder to train, in place.
        head: Network on top of the encoder, used only in training; None for no head.
        objectives: Dict from names of data sets to objectives.
        plan: Steps, learning rate and weight decay of the run; the optimiser is AdamW.
        prefixes: Lengths of shorter embeddings to train. A shorter embedding has the first
            coordinates of the whole embedding. The loss is the mean over all lengths.

    Attributes:
        model: The module to train: the encoder without ``Normalize`` modules, and the head. With a
            loss of sentence-transformers, the ``Normalize`` modules follow.
        losses: Dict from names of data sets to losses.
    """

    model: SentenceTransformer
    losses: dict[str, nn.Module]

    def __init__(
        self,
        settings: TrainSettings,
        *,
        encoder: SentenceEncoder,
        head: nn.Module | None,
        objectives: Mapping[str, Objective],
        plan: Plan,
        prefixes: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.between = settings.between
        self.scaled = settings.precision == "16"  # float16 gradients are scaled
        self.encoder = encoder
        self.head = head if head is not None else nn.Identity()
        heads: list[nn.Module] = [] if head is None else [TrainingHead(head)]
        if settings.loss is not None:  # it may compare dot products, which need the model's norms
            heads += list(encoder.model.children())[len(encoder.body) :]
        # not registered as a submodule, because it has the same parameters
        vars(self)["model"] = SentenceTransformer(
            modules=[*encoder.body, *heads], device=str(encoder.device)
        )
        self.objectives = dict(objectives)
        self.objective = next(iter(self.objectives.values()))  # of the current step
        self.prefixes = tuple(prefixes)
        self.plan, self.steps, self.learning_rate = plan, plan.steps, plan.learning_rate
        self.seed, self.log_every = settings.seed, settings.log_every
        self.measured: dict[str, float | None] = {}
        self.seen: list[Views] = []
        self.gradient_norm: float | None = None
        self._logged = False
        self._start = [
            (parameter, parameter.detach().clone())
            for name, parameter in encoder.named_parameters()
            # of LoRA, B alone: it starts at zero, so the share of B is that of the change B A
            if parameter.requires_grad and self.between < 1 and ".lora_A." not in name
        ]
        vars(self)["losses"] = {
            name: self._loss(objective, settings) for name, objective in self.objectives.items()
        }

    def _loss(self, objective: Objective, settings: TrainSettings) -> nn.Module:
        if settings.loss is not None:
            return host_loss(self.model, settings.loss, settings.loss_settings)
        common: dict[str, Any] = {
            "gather_across_devices": True,
            "groups": True,
            "backend": settings.backend,
            "prefixes": self.prefixes,
        }
        if settings.micro_batch is None:
            loss = ObjectiveLoss(self.model, objective, **common)
            loss.observe = self._observe
            return loss
        common["mini_batch_size"] = settings.micro_batch
        cached = CachedObjectiveLoss(self.model, objective, **common)
        cached.loss.observe = self._observe
        return cached

    # a step

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """Return a batch in the format of sentence-transformers' trainer."""
        columns = {
            f"column{i}_{name}": torch.from_numpy(values)
            for i, column in enumerate(batch.columns)
            for name, values in column._asdict().items()
        }
        label = torch.from_numpy(np.ascontiguousarray(batch.groups))
        if batch.scores is not None:
            label = torch.from_numpy(batch.scores.astype(np.float32)).squeeze(1)
        return {**columns, "label": label, "dataset_name": batch.dataset, "number": batch.number}

    def begin(self, step: int, dataset: str, number: int | None) -> None:
        """Begin a step; log every ``log_every``-th batch of each data set."""
        self.objective = self.objectives[dataset]
        counted = step if number is None else number
        self._logged = counted % self.log_every == 0 or step == self.steps - 1
        self.measured, self.seen = {}, []

    def _observe(self, views: Views) -> None:
        self.seen = [views.detached()]
        if self._logged:
            self.measured = measure(self.objective, self.seen[0])

    def end(self, loss: Tensor, dataset: str) -> None:
        """Log the loss of a step, if the step is logged."""
        if self._logged:
            self.measured["loss"] = float(loss.detach())
            if dataset:
                self.measured[loss_column(dataset)] = self.measured["loss"]

    # its update

    def replan(self, plan: Plan, log_every: int) -> None:
        """Change the number of steps, and with it the learning rates of the remaining steps."""
        self.plan, self.steps, self.log_every = plan, plan.steps, log_every

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        return learning_rate_at(self.plan, step)

    def before_update(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Set the learning rate of the step."""
        set_rates(optimizer, self.plan, step)

    def after_backward(self) -> None:
        """Do nothing: the gradients are used as they are."""

    def after_step(self) -> None:
        """Do nothing: there are no moving averages."""

    def blend(self) -> None:
        """Move the weights towards the original weights (``between``)."""
        with torch.no_grad():
            for parameter, start in self._start:
                parameter.lerp_(start, 1 - self.between)

    @contextmanager
    def blended(self) -> Iterator[None]:
        """Blend the weights while they are scored and saved, and then restore them exactly."""
        trained = [parameter.detach().clone() for parameter, _ in self._start]
        self.blend()
        try:
            yield
        finally:
            with torch.no_grad():
                for (parameter, _), value in zip(self._start, trained, strict=True):
                    parameter.copy_(value)

    def optimizer(self) -> torch.optim.Optimizer:
        """Return the optimiser AdamW; ``before_update`` sets the learning rate of a step."""
        # a fused step divides float16 gradients by their scale, but only after clipping
        plan = replace(self.plan, decay_all=not self.plan.weight_decay)  # biases, norms: no decay
        return build_optimizer(self.model, plan, fused=not self.scaled)


def check_loss(settings: TrainSettings) -> None:
    """Refuse an unknown loss, a loss that takes no pairs, and unknown or missing arguments."""
    if settings.loss is None:
        return
    if settings.loss not in (known := (*OF_PAIRS, *OF_SCORES)):
        raise SettingError(
            f"this loss takes neither pairs nor scores{nearest(settings.loss, known)}",
            setting="loss",
            value=settings.loss,
            remedy=f"choose {', '.join(known)}",
        )
    arguments = _arguments(settings.loss)
    for name in settings.loss_settings:
        if name not in arguments:
            raise SettingError(
                f"{settings.loss} has no argument of this name{nearest(name, arguments)}",
                setting=f"loss.{name}",
                remedy=f"it has {', '.join(arguments)}",
            )
        default = arguments[name].default
        given = default is not inspect.Parameter.empty
        if given and (callable(default) or isinstance(default, tuple)):
            raise SettingError(
                "a flag cannot give a function or a tuple",
                setting=f"loss.{name}",
                remedy=f"leave it out, for the default of {settings.loss}",
            )
    for name, parameter in arguments.items():
        if parameter.default is parameter.empty and name not in settings.loss_settings:
            raise SettingError(f"{settings.loss} requires this argument", setting=f"loss.{name}")


def check_record(settings: TrainSettings, record: Record) -> None:
    """Refuse a record without scores that a loss needs, or with labels or texts that it ignores."""
    loss = settings.loss
    if loss in OF_SCORES and not record.scores:
        raise InputError(f"add a column of scores to the data: {loss} needs it")
    if loss is not None and record.group:
        raise SettingError(
            "takes no labels, and would push texts of the same label apart",
            setting="loss",
            value=loss,
            remedy="leave it out, or choose only columns of texts, such as `--columns text`",
        )
    if loss in OF_TWO_TEXTS and len(record.texts) > 2:
        raise SettingError(
            "takes two texts, but the data have hard negatives",
            setting="loss",
            value=loss,
            remedy="choose two columns of texts with `--columns`, or another loss",
        )
    if loss is not None:
        _try(loss, settings.loss_settings, record)
    is_pair = len(record.texts) == 2
    if record.scores and loss not in OF_SCORES and not (is_pair and takes_scores(settings)):
        used = f"{loss or settings.objective} uses the texts, not the scores"
        warn(f"add --loss {OF_SCORES[0 if is_pair else 3]} to learn from the scores: {used}")


def _try(loss: str, settings: Mapping[str, float | str], record: Record) -> None:
    """Compute a loss of sentence-transformers on a tiny encoder, with the columns of a record."""
    texts, ones = max(2, len(record.texts)), torch.ones(3, 3, dtype=torch.long)
    columns = [ones] * texts
    if texts > 2 and loss not in OF_SCORES:
        columns = [ones, ones, ones.repeat(texts - 2, 1)[1:]]  # the negatives, without a repeat
    with quiet_loading(), redirect_stderr(StringIO()), warnings.catch_warnings(action="ignore"):
        model = SentenceEncoder.scratch(["a"], width=2, layers=1).model
        own = {key: model if key == "guide" else value for key, value in settings.items()}
        labels = torch.rand(3, len(record.scores)).squeeze(1)
        try:
            features = [{"input_ids": x, "attention_mask": x} for x in columns]
            host_loss(model, loss, own)(features, labels)
        except Exception as error:  # whatever their loss raises shows what it cannot take
            raise SettingError(
                f"has failed: {first_line(error)}",
                setting="loss",
                value=loss,
                remedy=f"choose other {'`--loss.NAME` settings, or other ' * bool(settings)}"
                f"`--columns` (now {len(record.texts)} of texts, {len(record.scores)} of scores)",
            ) from error


def check_scores(loss: str | None, store: TokenStore) -> None:
    """Refuse equal scores, and scores above 1 for a loss that compares scores with cosines."""
    if not store.report.scored:
        return
    scores = store.scores(np.arange(len(store)))
    if loss == "CosineSimilarityLoss" and (most := float(np.abs(scores).max())) > 1:
        raise InputError(
            f"divide the scores by {most:g}, the largest score, because {loss} compares scores "
            "with cosines; or use `--loss CoSENTLoss`, which learns only the order of scores"
        )
    if loss in ("CoSENTLoss", "AnglELoss") and np.ptp(scores) == 0:
        raise InputError(f"give different scores: {loss} learns the order, but all are equal")


def host_loss(
    model: SentenceTransformer, name: str, arguments: Mapping[str, float | str | nn.Module]
) -> nn.Module:
    """Build a loss of sentence-transformers. A value for an argument ``guide`` names a model."""
    kinds = {key: str(parameter.annotation) for key, parameter in _arguments(name).items()}
    values = {key: _value(value, kinds[key], model) for key, value in arguments.items()}
    loss: nn.Module = getattr(losses, name)(model, **values)
    return loss


def _arguments(name: str) -> dict[str, inspect.Parameter]:
    """Return the arguments of a loss other than the model."""
    constructor = getattr(losses, name).__init__  # the class of a deprecated loss hides its own
    return dict([*inspect.signature(constructor).parameters.items()][2:])


def _value(value: float | str | nn.Module, annotation: str, model: SentenceTransformer) -> object:
    """Convert the value of a flag to the type of an argument."""
    if isinstance(value, nn.Module):
        return value
    if "SentenceTransformer" in annotation:
        return SentenceEncoder.load(str(value), device=str(model.device)).model
    if value in ("true", "false"):
        return value == "true"
    whole = isinstance(value, float) and value.is_integer() and annotation.startswith("int")
    return int(value) if whole else value
