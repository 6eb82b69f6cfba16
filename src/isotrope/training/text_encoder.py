"""Loads the initial encoder of a training on text."""

from collections.abc import Iterator
from itertools import chain, islice

from torch import nn

from isotrope.core.errors import SettingError
from isotrope.encoders.cut_initialize import cut_initialize
from isotrope.encoders.device import find_device
from isotrope.encoders.lora import add_lora
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.training.gradient_cache import refuse_batch_statistics
from isotrope.training.settings import TrainSettings
from isotrope.training.text_data import records_of

_SCRATCH_TEXTS = 200_000  # enough text for a small vocabulary


def encoder_of(settings: TrainSettings) -> SentenceEncoder:
    """Return the initial encoder of a run."""
    device = settings.device
    if settings.encoder == "scratch":
        records = chain.from_iterable(records_of(settings, name) for name in settings.datasets)
        texts = (text for record in records for text in record.texts)
        encoder = SentenceEncoder.scratch(
            islice(texts, _SCRATCH_TEXTS),
            seed=settings.seed,
            max_length=max(128, settings.max_length),
        ).to(find_device(device))
        cut_initialize(encoder, settings.cut, what=settings.cut_what)
    else:
        encoder = SentenceEncoder.load(settings.encoder, pooling=settings.pooling, device=device)
    if settings.lora is not None:
        alpha, targets = settings.lora_alpha, settings.lora_targets
        add_lora(encoder, settings.lora, alpha=alpha, targets=targets, seed=settings.seed)
    elif settings.freeze == "embeddings":
        encoder.freeze_embeddings()
    if settings.max_length > encoder.positions:
        raise SettingError(
            f"{settings.encoder} cannot read so many tokens",
            setting="max_length",
            value=settings.max_length,
            remedy=f"give at most `--max-length {encoder.positions}`",
        )
    if settings.max_length > encoder.max_length:  # the saved model has the same limit
        encoder.extend(settings.max_length)
    if settings.dropout is not None:
        for module, name in dropouts(encoder):
            setattr(module, name, settings.dropout)
    if settings.gradient_checkpointing:
        encoder.checkpoint_activations()
    if settings.micro_batch is not None:
        refuse_batch_statistics(encoder.train())  # the mode of the training
    return encoder


def prefixes_of(settings: TrainSettings, encoder: SentenceEncoder) -> list[int]:
    """Return the lengths of the shorter embeddings (``--matryoshka``), the largest first."""
    return sorted({*settings.matryoshka} - {encoder.dimension}, reverse=True)


def dropouts(encoder: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules and attributes that hold dropout rates."""
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            yield module, "p"
            continue
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                yield module, name
