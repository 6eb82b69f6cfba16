"""Declares the settings that trainings on text and on images share.

``training.settings`` adds those of text, ``training.images.settings`` those of images.
"""

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import field_validator
from pydantic.fields import FieldInfo

from isotrope.core.settings import Settings, Used, setting
from isotrope.paradigm.declared import objective_settings

in_data = partial(setting, group="data")
in_model = partial(setting, group="model")
in_objective = partial(setting, group="objective and method")
in_steps = partial(setting, group="optimisation")
in_watch = partial(setting, group="evaluation and logging")
in_hardware = partial(setting, group="hardware")
in_run = partial(setting, group="run")
"""Functions that declare a setting under a title of the help."""

no_loss = Used(lambda loss: loss is None, "leave it out: {loss} does not take this setting")
of_objective = partial(in_objective, used=no_loss)
logged_every = partial(in_watch, 10, "Number of steps between rows of metrics.csv.", ge=1)

_PRECISIONS = {
    **dict.fromkeys(("fp32", "float32", "32-true"), "32"),
    **dict.fromkeys(("fp16", "float16", "16-mixed"), "16"),
    **dict.fromkeys(("bfloat16", "bf16-mixed"), "bf16"),
}
"""Our name of each precision, by its name in other libraries."""


class RunSettings(Settings, ABC):
    """The settings that trainings on text and on images share.

    Attributes:
        kind: Kind of the data: text or images.
        module: Name of the Python module with the function that trains.
        free: Names of the settings that may change when a run is resumed. No such change affects
            the batches, but another number of devices changes the dropout masks.
    """

    kind: ClassVar[str]
    module: ClassVar[str]
    from_file = True
    places = ("files", "plugin", "output", "dev", "encoder", "data", "classes", "groups")
    dotted: ClassVar[tuple[str, ...]] = ("objective",)
    free: ClassVar[frozenset[str]] = frozenset(
        {"output", "checkpoint_every", "keep_every", "progress", "device", "devices", "logger"}
        | {"refit"}  # decides only what follows the steps
    )

    output: str = in_run(
        ..., "New folder for the run; with --resume, the folder of the run.", python="str | Path"
    )
    objective_settings: dict[str, float | str] = setting(
        {},
        "Hyperparameters of the objective, such as --objective.temperature 0.05. For text, "
        "--objective.temperature auto takes the temperature that `isotrope audit` recommends. "
        "--objective.dissipation margin:0.3 makes an anchor stop learning at a margin of 0.3.",
        python="Mapping[str, float | str]",
        used=no_loss,
    )
    plugin: list[str] = in_objective(
        [], "Python file that defines objectives.", python="str | Path | list[str | Path]"
    )
    micro_batch: int | None = in_steps(
        None,
        "Number of inputs to encode at a time, to save memory. The gradient does not change; each "
        "step takes one more forward pass.",
        ge=1,
        used=no_loss,
    )
    backend: Literal["auto", "eager", "rowblock", "bfloat16"] = of_objective(
        "auto",
        "Way to compute the loss. auto: chosen by the batch size and device. eager: all "
        "similarities of a batch are stored. rowblock: the similarities of a few rows are stored "
        "at a time. bfloat16: like rowblock, but matrix products are in bfloat16.",
    )
    cut: float = in_model(
        1.0,
        "Experimental: divisor of the initial weights (cut-initialization). Draganov et al., 2024, "
        "use 3 for contrastive methods and 9 for others. In our trainings, the division raised the "
        "score at 1/30 of the method's learning rate, and lowered the score at the full rate. "
        "Pretrained weights are not divided.",
        gt=0,
    )
    cut_what: Literal["weights", "all"] = in_model(
        "weights",
        "Parameters that --cut divides. weights: matrices and kernels of layers, as in the paper. "
        "all: every parameter, as in the authors' code.",
        used=Used(lambda cut: cut != 1, "add `--cut`: nothing is divided", note=True),
    )
    max_steps: int | None = in_steps(None, "Number of steps after which the run ends.", ge=1)
    precision: Literal["32", "bf16", "16"] = in_hardware(
        "32",
        "Numeric precision of the encoder.",
        used=Used(
            lambda precision, accelerator: (precision, accelerator) != ("16", "cpu"),
            "use `--precision bf16` or `--precision 32` on a CPU: 16 needs a GPU",
        ),
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = in_hardware("auto", "Device to train on.")
    devices: int = in_hardware(
        1,
        "Number of processes, between which every batch is divided. Each process has its own GPU, "
        "or a share of the CPU. The gradient does not change. For several machines, use torchrun.",
        ge=1,
        used=[
            no_loss,
            Used(
                lambda devices, started: started in (0, devices),
                "leave it out: torchrun has started {started} processes on this machine",
            ),
            Used(
                lambda accelerator: accelerator != "mps",
                "add `--device cpu`: an Apple GPU takes only one process",
            ),
            Used(lambda devices, gpus: devices <= gpus, "use at most {gpus}, one for each GPU"),
            Used(lambda own: not own, "use torchrun: new processes do not have your encoder"),
        ],
    )
    if TYPE_CHECKING:
        batch_size: int  # on all devices; text and images have different defaults
    seed: int = in_run(42, "Seed of all random numbers.", ge=0, lt=2**32)
    checkpoint_every: int = in_run(500, "Number of steps between checkpoints.", ge=1)
    keep_every: int | None = in_run(
        None,
        "Number of steps between checkpoints that are never deleted; step 0 and the last step are "
        "kept too. Default: only the newest two checkpoints are kept.",
        ge=1,
    )
    log_every: int = logged_every()
    logger: list[Literal["tensorboard", "trackio", "wandb", "mlflow"]] = in_watch(
        ["tensorboard"],
        "Loggers in addition to metrics.csv. --logger without a name turns these loggers off. "
        "Install trackio, wandb or mlflow yourself, and set project, mode and server by the "
        "environment variables of these packages.",
        python="str | list[str]",
    )
    progress: bool = in_watch(True, "Show the progress: a bar on a terminal, otherwise lines.")

    @field_validator("precision", mode="before")
    @classmethod
    def _bits(cls, value: object) -> object:
        """Return a number as text, because YAML reads 32 as a number; replace synonyms."""
        return str(value) if isinstance(value, int) else _PRECISIONS.get(str(value), value)

    @property
    @abstractmethod
    def inputs(self) -> list[str]:
        """The files and folders of the training data."""

    @classmethod
    def ordered(cls) -> dict[str, FieldInfo]:
        """Return a dict of the fields in the order of the help; shared fields come last."""
        names = sorted(cls.model_fields, key=lambda name: name in RunSettings.model_fields)
        return {name: cls.model_fields[name] for name in names}

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return the names of the settings of all objectives, such as objective.temperature."""
        return objective_settings()
