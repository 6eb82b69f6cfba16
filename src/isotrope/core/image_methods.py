"""Lists the training methods for images; their classes are in ``isotrope.training.images``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageMethodRecord:
    """A training method: its file and class in ``training/images``, and what a diagnosis needs."""

    file: str
    cls: str
    prevents_collapse: bool = False  # whether its predictor or centre does so, without negatives
    cut: int = 3  # the suggested divisor of the initial weights (--cut)


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
