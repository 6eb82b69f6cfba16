"""Encoders of text and images. All trainable parameters are here; an objective has none."""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.encoders.cut_initialize import cut_initialize as cut_initialize
    from isotrope.encoders.heads import DINOHead as DINOHead
    from isotrope.encoders.heads import LinearHead as LinearHead
    from isotrope.encoders.heads import MLPHead as MLPHead
    from isotrope.encoders.heads import predictor as predictor
    from isotrope.encoders.heads import projector as projector
    from isotrope.encoders.image import ImageEncoder as ImageEncoder
    from isotrope.encoders.image_nets import ARCHITECTURES as ARCHITECTURES
    from isotrope.encoders.loading import load as load
    from isotrope.encoders.momentum import Momentum as Momentum
    from isotrope.encoders.momentum import Queue as Queue
    from isotrope.encoders.names import INSTALLED as INSTALLED
    from isotrope.encoders.names import resolve as resolve
    from isotrope.encoders.sentence import SentenceEncoder as SentenceEncoder
    from isotrope.encoders.shared_norm import share_statistics as share_statistics

public(__name__)
