"""Declares the settings that only a training on images has, and finds training methods by name.

Options of the method have the form ``--method.queue 4096``; hyperparameters of the objective have
the form ``--objective.temperature 0.1``. The defaults of optimiser, learning rate, weight decay,
warm-up, augmentation and objective depend on the method (docs/methods). The default batch size and
number of epochs are those of Manna et al. 2023 for small images.
"""

import importlib
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from isotrope.core.errors import InputError, unknown
from isotrope.core.hyper import hypers, value_of
from isotrope.core.image_methods import METHODS
from isotrope.core.settings import Used, setting
from isotrope.training.recipe import Scheduler
from isotrope.training.run_settings import (
    RunSettings,
    in_data,
    in_model,
    in_objective,
    in_steps,
    in_watch,
)

if TYPE_CHECKING:
    from isotrope.training.images.method import ImageMethod, Options

_of_scratch = Used(
    lambda scratch: scratch, "leave it out: it is only for encoders from scratch, not for {encoder}"
)


class ImageSettings(RunSettings):
    """Settings of a training on images; each field has a help text, a default and bounds."""

    kind = "images"
    module = "isotrope.training.images.train"
    dotted = ("method", "objective")
    free = RunSettings.free | {"workers"}

    data: str = in_data(
        ...,
        "Folder of images, .npz file, Hugging Face dataset folder (such as CIFAR-10 from the hub), "
        "or 'digits' (from scikit-learn). A folder of images may have a folder for each class, and "
        "may be split into train/ and test/.",
        positional=True,
        metavar="DATA",
    )
    method: str = in_objective("simclr", f"Method: {', '.join(METHODS)}.")
    method_settings: dict[str, float | str] = setting(
        {}, "Options of the method (--method.queue 4096)."
    )
    objective: str | None = in_objective(
        None, "Objective (see `isotrope objectives`). Default: depends on the method."
    )
    encoder: str = in_model(
        "resnet18",
        "Name of an encoder with random weights: resnet9, resnet18, resnet34, resnet50, vit-tiny, "
        "vit-small or vit-base. Or run folder, model folder or hub id of a trained encoder.",
    )
    width: int | None = in_model(
        None,
        "Number of channels in the first stage of a ResNet from scratch. Default: 64.",
        ge=1,
        used=_of_scratch,
    )
    stem: Literal["auto", "cifar", "imagenet"] = in_model(
        "auto",
        "First layers of a ResNet from scratch. cifar: a 3 x 3 convolution, which keeps the "
        "resolution. imagenet: a 7 x 7 convolution and pooling, which divide the resolution by "
        "four. auto: cifar for images up to 32 x 32, imagenet for larger images.",
        used=_of_scratch,
    )
    image_size: int | None = in_data(
        None,
        "Side of the crops in pixels. Default: the side of the images if all have the same side of "
        "at most 96; otherwise 32, 64, 96, 112 or 224, depending on the size of most images.",
        used=Used(lambda image_size, side: image_size == side, "give {side}, the encoder's side"),
        ge=4,
    )
    augment: str | None = in_data(None, "Augmentation of crops. Default: depends on the method.")
    pixels: Literal["imagenet", "none"] = in_data(
        "imagenet",
        "Normalisation of the pixels. imagenet: by ImageNet's mean and standard deviation. none: "
        "values stay in [0, 1].",
        used=_of_scratch,
    )
    classes: str | None = in_data(None, "File with the names of the classes to use, one a line.")
    limit: int | None = in_data(None, "Maximum number of images to train on.", ge=2)
    holdout: float = in_data(
        0.0,
        "Share of the labelled images to hold out as a test part, if the data have no test part.",
        ge=0,
        le=0.5,
    )
    knn_every: int = in_watch(
        1,
        "Number of epochs between kNN scores on the test part, for data with labels. 0: scores "
        "only at the start and the end.",
        ge=0,
    )
    knn_images: int | None = in_watch(
        None,
        "Maximum number of training images, and of test images, for each kNN score during "
        "training. Default: all.",
        ge=2,
    )
    linear: bool = in_watch(True, "Fit a linear probe at the end, if the images have labels.")
    batch_size: int = in_steps(128, "Number of images per step, on all devices together.", ge=2)
    epochs: float = in_steps(200.0, "Number of epochs, unless --max-steps is given.", gt=0)
    optimizer: Literal["sgd", "lars", "adamw"] | None = in_steps(
        None,
        "Optimiser. Default: depends on the method. If you set another optimiser, also set "
        "--learning-rate. With lars, biases and norms have no weight decay.",
        used=Used(
            lambda learning_rate, usual: learning_rate,
            "also give `--learning-rate`: the method's default is for the optimiser {usual}",
        ),
    )
    learning_rate: float | None = in_steps(
        None, "Peak learning rate, not scaled by batch size. Default: depends on the method.", gt=0
    )
    weight_decay: float | None = in_steps(
        None, "Weight decay, the same at all steps. Default: depends on the method.", ge=0
    )
    warmup_epochs: float | None = in_steps(
        None, "Epochs in which the learning rate rises. Default: depends on the method.", ge=0
    )
    scheduler: Scheduler = in_steps("cosine", "Learning-rate schedule after the warm-up.")
    clip: float | None = in_steps(None, "Norm above which gradients are clipped.", gt=0)
    workers: int | None = in_data(
        None,
        "Number of processes that decode images. Default: 0 for an .npz file; otherwise the number "
        "of cores, at most 8.",
        ge=0,
    )

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return the names of the settings of all methods and objectives, such as method.queue."""
        options = {key for name in METHODS for key in hypers(find_method(name).options_class)}
        return [*(f"method.{name}" for name in sorted(options)), *super().dotted_names()]

    @property
    def inputs(self) -> list[str]:
        """The files and folders of the training data; none for digits."""
        return [] if self.data == "digits" else [self.data]


def find_method(name: str) -> "type[ImageMethod]":
    """Import and return the class of a method, whose name may be in upper case."""
    if name.lower() not in METHODS:
        raise InputError(unknown("unknown method", name, METHODS))
    record = METHODS[name.lower()]
    module = importlib.import_module(f"isotrope.training.images.{record.file}")
    method: type[ImageMethod] = getattr(module, record.cls)
    return method


def options_of(name: str, settings: Mapping[str, Any] | None = None) -> "Options":
    """Return the options of a method; options that are not given have their defaults.

    Args:
        name: Name of the method.
        settings: Dict from names of options to values; a value may be a string, as in a flag.
    """
    cls = find_method(name).options_class
    fields = hypers(cls)
    whole = {k for k, kind in typing.get_type_hints(cls).items() if kind is int}
    values: dict[str, Any] = {}
    for key, value in (settings or {}).items():
        if key not in fields:
            raise InputError(unknown(f"method {name} has no option", key, fields))
        try:
            values[key] = value_of(fields[key], value)
        except ValueError as error:
            raise InputError(f"method {name}: {key} must be {error}") from None
        if key in whole:
            if not values[key].is_integer():
                raise InputError(f"method {name}: {key} must be a whole number; found {value!r}")
            values[key] = int(values[key])
    try:
        return cls(**values)
    except ValueError as error:
        raise InputError(f"method {name}: {error}") from None
