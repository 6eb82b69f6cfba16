"""Encoders of text and images; all trainable parameters live here, none in an objective."""

import importlib
from typing import TYPE_CHECKING

# at once, and it imports nothing: later the file of this name would hide the function
from isotrope.encoders.cut_initialize import cut_initialize

__all__ = [
    "DINOHead",
    "ImageEncoder",
    "LinearHead",
    "MLPHead",
    "Momentum",
    "Queue",
    "SentenceEncoder",
    "cut_initialize",
    "load",
    "load_encoder",
    "predictor",
    "projector",
    "share_statistics",
]

if TYPE_CHECKING:
    from isotrope.encoders.heads import LinearHead as LinearHead
    from isotrope.encoders.heads import MLPHead as MLPHead
    from isotrope.encoders.image import ImageEncoder as ImageEncoder
    from isotrope.encoders.loading import load_encoder as load
    from isotrope.encoders.loading import load_encoder as load_encoder
    from isotrope.encoders.momentum import Momentum as Momentum
    from isotrope.encoders.projectors import DINOHead as DINOHead
    from isotrope.encoders.projectors import predictor as predictor
    from isotrope.encoders.projectors import projector as projector
    from isotrope.encoders.queue import Queue as Queue
    from isotrope.encoders.sentence import SentenceEncoder as SentenceEncoder
    from isotrope.encoders.shared_norm import share_statistics as share_statistics

_HOME = {
    "DINOHead": "projectors",
    "ImageEncoder": "image",
    "LinearHead": "heads",
    "MLPHead": "heads",
    "Momentum": "momentum",
    "Queue": "queue",
    "SentenceEncoder": "sentence",
    "load_encoder": "loading",
    "predictor": "projectors",
    "projector": "projectors",
    "share_statistics": "shared_norm",
}


def __getattr__(name: str) -> object:
    if name == "load":
        name = "load_encoder"
    if name not in _HOME:
        raise AttributeError(f"module 'isotrope.encoders' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isotrope.encoders.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
