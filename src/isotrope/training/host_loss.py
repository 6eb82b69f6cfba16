"""Builds losses of sentence-transformers by name, to train with instead of an objective.

Each loss takes pairs, scored pairs, or pairs with hard negatives that have scores.
"""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from sentence_transformers.sentence_transformer import losses
from torch import nn

from isotrope.core.errors import InputError, SettingError, nearest
from isotrope.data.text.tokens import TokenStore
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.training.settings import OF_SCORES, TrainSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

OF_PAIRS = (
    *("MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss"),
    *("MultipleNegativesSymmetricRankingLoss", "CachedMultipleNegativesSymmetricRankingLoss"),
    *("GISTEmbedLoss", "CachedGISTEmbedLoss", "MegaBatchMarginLoss"),
)
"""Losses of pairs. All but MegaBatchMarginLoss also take hard negatives."""


def check_loss(settings: TrainSettings) -> None:
    """Refuse an unknown loss, one that takes no pairs, and wrong arguments."""
    if settings.loss is None:
        return
    if settings.loss not in (known := (*OF_PAIRS, *OF_SCORES)):
        raise SettingError(
            f"is not a loss that takes pairs or scores{nearest(settings.loss, known)}",
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
    for name, parameter in arguments.items():
        if parameter.default is parameter.empty and name not in settings.loss_settings:
            raise SettingError(f"is required by {settings.loss}", setting=f"loss.{name}")


def check_scores(loss: str | None, store: TokenStore) -> None:
    """Refuse scores above the largest cosine, and scores that are all equal."""
    if not store.report.scored:
        return
    scores = store.scores(np.arange(len(store)))
    if loss == "CosineSimilarityLoss" and (most := float(np.abs(scores).max())) > 1:
        raise InputError(
            f"divide the scores by {most:g}, the largest one, because {loss} compares them with "
            "cosines; or use `--loss CoSENTLoss`, which only reads their order"
        )
    if loss in ("CoSENTLoss", "AnglELoss") and np.ptp(scores) == 0:
        raise InputError(f"give different scores: all are {scores[0, 0]:g}, so {loss} has no order")


def host_loss(
    model: "SentenceTransformer", name: str, arguments: Mapping[str, float | str]
) -> nn.Module:
    """Build a loss of sentence-transformers; a ``guide`` among the arguments is a model name."""
    kinds = {key: str(parameter.annotation) for key, parameter in _arguments(name).items()}
    values = {key: _value(value, kinds[key]) for key, value in arguments.items()}
    loss: nn.Module = getattr(losses, name)(model, **values)
    return loss


def _arguments(name: str) -> dict[str, inspect.Parameter]:
    """Return the arguments of a loss other than the model."""
    return dict([*inspect.signature(getattr(losses, name)).parameters.items()][1:])


def _value(value: float | str, annotation: str) -> object:
    """Convert the value of a flag to the type of an argument."""
    if "SentenceTransformer" in annotation:
        return SentenceEncoder.load(str(value)).model
    if value in ("true", "false"):
        return value == "true"
    whole = isinstance(value, float) and value.is_integer() and annotation.startswith("int")
    return int(value) if whole else value
