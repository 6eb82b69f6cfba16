"""Declares the settings of a training on images that text does not have.

Options of the method are ``--method.queue 4096``, as hyperparameters of the objective are
``--objective.temperature 0.1``. What is left out is the method's own: optimiser, learning rate,
weight decay, warm-up, augmentation and objective differ from method to method (docs/methods).
Batch size and epochs are those of Manna et al. 2023 for small images.
"""

from typing import Literal

from isotrope.core.hyper import hypers
from isotrope.core.settings import setting
from isotrope.training.images.registry import METHODS, find_method
from isotrope.training.recipe import Scheduler
from isotrope.training.settings import (
    RunSettings,
    in_data,
    in_model,
    in_objective,
    in_steps,
    in_watch,
)


class ImageSettings(RunSettings):
    """Settings of a training on images; every field has its help, default and bounds here."""

    kind = "images"
    module = "isotrope.training.images.train"
    dotted = ("method", "objective")
    free = RunSettings.free | {"workers"}

    data: str = in_data(
        ...,
        positional=True,
        metavar="DATA",
        description="Folder of images (class folders or flat; train/ and test/ inside it are "
        "kept apart), .npz, folder of CIFAR, STL-10, Tiny-ImageNet or Flowers102, Hugging Face "
        "dataset folder, or 'digits' (from scikit-learn).",
    )
    method: str = in_objective("simclr", description=f"Method: {', '.join(METHODS)}.")
    method_settings: dict[str, float | str] = setting(
        {}, description="Options of the method (--method.queue 4096)."
    )
    objective: str | None = in_objective(
        None, description="Name, see `isotrope objectives`; default: the method's own."
    )
    encoder: str = in_model(
        "resnet18",
        description="resnet9, resnet18, resnet34, resnet50, vit-tiny, vit-small or vit-base from "
        "scratch; or a run folder, a model folder or a hub id.",
    )
    width: int | None = in_model(
        None, ge=1, description="Channels of the first stage of a ResNet from scratch; default: 64."
    )
    stem: Literal["auto", "cifar", "imagenet"] = in_model(
        "auto",
        description="First layers of a ResNet from scratch: cifar keeps the resolution, imagenet "
        "divides it by four; auto takes cifar for images up to 32 x 32.",
    )
    image_size: int | None = in_data(
        None,
        ge=4,
        description="Side of the crops in pixels. Default: the side of the images if all are equal "
        "and at most 96; otherwise 32, 64, 96, 112 or 224, by the size of most images.",
    )
    augment: str | None = in_data(
        None, description="Augmentation of the views; default: the method's own."
    )
    pixels: Literal["imagenet", "none"] = in_data(
        "imagenet",
        description="Normalise by ImageNet's mean and deviation, or leave values in [0, 1].",
    )
    classes: str | None = in_data(None, description="File of the classes to use, one on each line.")
    limit: int | None = in_data(None, ge=2, description="Number of images to train on.")
    holdout: float = in_data(
        0.0,
        ge=0,
        le=0.5,
        description="Share of the labelled training images to test on, if there is no test part.",
    )
    knn_every: int = in_watch(
        1,
        ge=0,
        description="Epochs between kNN scores on the test part (needs labels; 0: only at the "
        "start and the end).",
    )
    knn_images: int | None = in_watch(
        None,
        ge=2,
        description="Largest number of training images, and of test images, for kNN during "
        "training; default: all.",
    )
    linear: bool = in_watch(True, description="Fit a linear probe at the end (needs labels).")
    batch_size: int = in_steps(128, ge=2, description="Images per step, on all devices.")
    epochs: float = in_steps(200.0, gt=0, description="Passes over the data (or --max-steps).")
    optimizer: Literal["sgd", "lars", "adamw"] | None = in_steps(
        None,
        description="Optimiser; default: the method's own. If you change it, also give "
        "--learning-rate. lars does not decay biases and norms.",
    )
    learning_rate: float | None = in_steps(
        None,
        gt=0,
        description="Peak rate, not scaled by batch size; default: the method's own.",
    )
    weight_decay: float | None = in_steps(
        None, ge=0, description="Constant weight decay; default: the method's own."
    )
    warmup_epochs: float | None = in_steps(
        None,
        ge=0,
        description="Epochs of learning-rate warm-up; default: the method's own.",
    )
    scheduler: Scheduler = in_steps(
        "cosine", description="Learning-rate schedule after the warm-up."
    )
    clip: float | None = in_steps(None, gt=0, description="Norm to which gradients are clipped.")
    workers: int | None = in_data(
        None,
        ge=0,
        description="Number of processes that decode images; default: one for each core for "
        "files, none for arrays.",
    )

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return the dotted settings of all methods and objectives."""
        options = {key for name in METHODS for key in hypers(find_method(name).options_class)}
        return [*(f"method.{name}" for name in sorted(options)), *super().dotted_names()]

    @property
    def inputs(self) -> list[str]:
        """The files and folders that are trained on; the digits come with scikit-learn."""
        return [] if self.data == "digits" else [self.data]

    @property
    def rows(self) -> int:
        """How many examples make a batch, of all devices."""
        return self.batch_size
