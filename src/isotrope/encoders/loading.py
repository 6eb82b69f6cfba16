"""Loads an encoder of text or images by its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.core.errors import InputError
from isotrope.encoders.model_folder import is_image
from isotrope.encoders.names import resolve

if TYPE_CHECKING:
    from isotrope.encoders.image import ImageEncoder
    from isotrope.encoders.sentence import SentenceEncoder


def load(
    name: str | Path,
    *,
    pooling: str | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
    model_kwargs: Mapping[str, Any] | None = None,
) -> "SentenceEncoder | ImageEncoder":
    """Load an encoder in evaluation mode, in float32 unless ``model_kwargs`` has a ``dtype``.

    Args:
        name: Folder of a model, run folder of isotrope, or id of the Hugging Face hub.
        pooling: Pooling that replaces the pooling of a text encoder; None keeps the model's own.
        device: ``auto`` (the first available of CUDA, MPS and CPU) or a device of torch.
        trust_remote_code: Whether to run code that comes with a text encoder.
        model_kwargs: Keywords for ``from_pretrained`` of transformers, for a text encoder, such as
            ``dtype``, ``attn_implementation`` and ``quantization_config``.

    Raises:
        InputError: The model does not exist or is broken, the pooling or device is unknown, or an
            option for text encoders is set, but the model takes images.
    """
    of_text: dict[str, Any] = {
        "pooling": pooling,
        "trust_remote_code": trust_remote_code,
        "model_kwargs": model_kwargs,
    }
    # both classes keep this name, and resolve it again: by then, a download is in the hub's cache
    if not is_image(resolve(name, code=trust_remote_code)):
        from isotrope.encoders.sentence import SentenceEncoder

        return SentenceEncoder.load(name, device=device, **of_text)
    for option, value in of_text.items():
        if value:
            raise InputError(f"leave out {option}, an option for text: {name} takes images")
    from isotrope.encoders.image import ImageEncoder

    return ImageEncoder.load(name, device=device)
