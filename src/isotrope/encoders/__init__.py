"""Floor 3: text in, embeddings out; whatever holds trainable state lives here, never in a loss."""

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["MLPHead", "SentenceEncoder", "load"]

if TYPE_CHECKING:
    from isotrope.encoders.heads import MLPHead as MLPHead
    from isotrope.encoders.sentence import SentenceEncoder as SentenceEncoder
    from isotrope.encoders.sentence import load as load

_HOME = {"MLPHead": "heads", "SentenceEncoder": "sentence", "load": "sentence"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name of the room
    if name not in _HOME:
        raise AttributeError(f"module 'isotrope.encoders' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isotrope.encoders.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
