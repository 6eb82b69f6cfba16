"""Opens the images of a training, and builds an encoder from scratch for images of their size."""

from contextlib import suppress
from pathlib import Path

from isotrope.core.pictures import Unreadable, grey_levels
from isotrope.data.images.encoded import EncodedImages
from isotrope.data.images.records import ImageSet
from isotrope.data.images.sets import load_images
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.image_nets import IMAGENET_MEAN, IMAGENET_STD
from isotrope.training.images.settings import ImageSettings
from isotrope.training.progress import warn

_SMALL_SIDE = 96  # images up to this side, in pixels, are cropped in their own size
_LOOKED_AT = 8  # largest number of images whose grey values are counted
_TWELVE_BITS = 4096  # 16-bit images below this are dark, or come from a camera with 12 bits


def open_images(settings: ImageSettings, crop_side: int | None) -> ImageSet:
    """Open the images, whose size decides their side if ``crop_side`` is None.

    Raises an error if no image of the training part can be decoded.
    """
    side = crop_side
    if side is not None and side > _SMALL_SIDE:  # resized before they are cropped: 256 for 224
        side = round(side * 8 / 7)
    images = load_images(
        settings.data,
        side=side,
        holdout=settings.holdout,
        seed=settings.seed,
        limit=settings.limit,
        classes=None if settings.classes is None else Path(settings.classes),
    )
    images.train.images.read([0])  # tries one image after another until one can be decoded
    return images


def build_encoder(settings: ImageSettings, image_side: int) -> ImageEncoder:
    """Build an encoder from scratch for crops of images with this side, in pixels."""
    imagenet = settings.pixels == "imagenet"
    crop_side = image_side if image_side <= _SMALL_SIDE else round(image_side * 7 / 8)
    return ImageEncoder.build(
        settings.encoder,
        width=settings.width,
        stem=settings.stem,
        image_size=settings.image_size or crop_side,
        seed=settings.seed,
        mean=IMAGENET_MEAN if imagenet else (0.0, 0.0, 0.0),
        std=IMAGENET_STD if imagenet else (1.0, 1.0, 1.0),
    )


def warn_of_lost_grey(images: EncodedImages) -> None:
    """Warn if 16-bit images lose grey values; if the brightest is dark, tell how to save it."""
    losses = []
    for i in range(0, len(images), len(images) // _LOOKED_AT + 1):
        with suppress(Unreadable):  # it is replaced and counted when it is read
            held, read, largest = grey_levels(images.opened(images.keys[i]))
            if held > read:
                losses.append((largest, held, read, images.names[i]))
    if not losses:
        return
    largest, held, read, name = max(losses)
    message = (
        f"{name}: images are read with 8 bits, so only {read} of its {held:,} grey values "
        "remain different"
    )
    if largest < _TWELVE_BITS:
        message += (
            ". If white is not 65,535 in these images, multiply the values of all images by the "
            f"same number and save them again (12 bits: by 16); the largest is {largest:,}"
        )
    warn(message)
