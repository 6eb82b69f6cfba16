"""The methods of training on images, by name; ``training.images`` has their classes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageMethodRecord:
    """A method's file in ``training/images`` and its class there, and what a diagnosis needs."""

    file: str
    cls: str
    prevents_collapse: bool = False  # by a predictor or a centre, without negatives
    cut: int = 3  # divisor for cut-initialization


METHODS = {
    "simclr": ImageMethodRecord("simclr", "SimCLR"),
    "mocov2": ImageMethodRecord("moco_v2", "MoCoV2"),
    "mocov3": ImageMethodRecord("moco_v3", "MoCoV3"),
    "byol": ImageMethodRecord("byol", "BYOL", prevents_collapse=True, cut=9),
    "simsiam": ImageMethodRecord("simsiam", "SimSiam", prevents_collapse=True, cut=9),
    "barlowtwins": ImageMethodRecord("barlow_twins", "BarlowTwinsMethod"),
    "vicreg": ImageMethodRecord("vicreg", "VICRegMethod"),
    "dino": ImageMethodRecord("dino", "DINOMethod", prevents_collapse=True),
}
