"""Opens the images of a training, and builds an encoder from scratch for images of their size."""

from contextlib import suppress
from pathlib import Path

from isotrope.core.pictures import Unreadable, grey_levels
from isotrope.data.images.folder import EncodedImages
from isotrope.data.images.records import ImageSet
from isotrope.data.images.sets import load_images
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.image_nets import IMAGENET_MEAN, IMAGENET_STD
from isotrope.training.images.settings import ImageSettings
from isotrope.training.progress import warn

_TWELVE_BITS = 4096  # 16-bit images below this are dark, or come from a camera with 12 bits
SMALL_SIDE = 96  # images up to this side, in pixels, are not resized before cropping
# larger ones are resized to 8/7 of the side of a crop (256 for 224)


def open_images(settings: ImageSettings, size: int | None) -> ImageSet:
    """Load the images; large ones are resized to 8/7 of the side of the crops."""
    side = size if size is None or size <= SMALL_SIDE else round(size * 8 / 7)
    return load_images(
        settings.data,
        side=side,
        holdout=settings.holdout,
        seed=settings.seed,
        limit=settings.limit,
        classes=None if settings.classes is None else Path(settings.classes),
    )


def build_encoder(settings: ImageSettings, side: int) -> ImageEncoder:
    """Build an encoder from scratch for images of ``side`` pixels."""
    size = settings.image_size or (side if side <= SMALL_SIDE else round(side * 7 / 8))
    return ImageEncoder.build(
        settings.encoder,
        width=settings.width,
        stem=settings.stem,
        image_size=size,
        seed=settings.seed,
        mean=IMAGENET_MEAN if settings.pixels == "imagenet" else (0.0, 0.0, 0.0),
        std=IMAGENET_STD if settings.pixels == "imagenet" else (1.0, 1.0, 1.0),
    )


def warn_of_lost_grey(images: EncodedImages) -> None:
    """Warn if 16-bit images lose grey values, and tell how to save dark ones; look at up to 8."""
    losses = []
    for i in range(0, len(images), len(images) // 8 + 1):
        with suppress(Unreadable):  # it is replaced and counted when it is read
            held, read, largest = grey_levels(images.opened(images.keys[i]))
            if held > read:
                losses.append((largest, held, read, images.names[i]))
    if losses:
        largest, held, read, name = max(losses)  # whether it is dark says most about the camera
        dark = largest < _TWELVE_BITS
        warn(
            f"{name}: images are read with 8 bits, so only {read} of its {held:,} grey values "
            "remain different"
            + f". If white is not 65,535 in these images, multiply the values of all images by the "
            f"same number and save them again (12 bits: by 16); the largest is {largest:,}" * dark
        )
