"""Declares the settings of a run once, for flags, YAML keys and Python arguments.

A field here is a flag (``batch_size`` is ``--batch-size``), a key of the YAML file
(``batch-size:``) and an argument of ``isotrope.fit``. Hyperparameters of the objective are
``--objective.temperature 0.05`` in all three (``objective.temperature: 0.05``). ``RunSettings`` is
what text and images share; ``training.images.settings`` has the fields for images. The defaults for
text are SimCSE's (Gao et al., 2021) where it has one.
"""

from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import yaml
from pydantic import Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from isotrope.core.files import from_home
from isotrope.core.settings import Settings, flag, setting
from isotrope.data.sources import Sampling, by_dataset
from isotrope.paradigm.declared import objective_settings
from isotrope.training.recipe import Scheduler

in_data = partial(setting, group="data")
in_model = partial(setting, group="model")
in_objective = partial(setting, group="objective and method")
in_steps = partial(setting, group="optimisation")
in_watch = partial(setting, group="evaluation and logging")
in_hardware = partial(setting, group="hardware")
in_run = partial(setting, group="run")
"""Fields by their title in the help."""


OF_SCORES = ("CoSENTLoss", "AnglELoss", "CosineSimilarityLoss", "MarginMSELoss", "DistillKLDivLoss")
"""Losses of sentence-transformers that take scores: of pairs; the last two of each negative."""


_LISTS = ("files", "columns", "plugin", "lora_targets", "logger")
_PLACES = ("files", "plugin", "output", "dev", "encoder", "data", "classes")


class RunSettings(Settings, ABC):
    """The settings that trainings on text and on images share.

    Attributes:
        kind: Kind of the run: text or images.
        module: Module that trains it.
        free: Settings that may change when a run is resumed, because they do not change the
            batches. (Another number of devices draws other dropout masks.)
    """

    kind: ClassVar[str]
    module: ClassVar[str]
    from_file = True
    dotted: ClassVar[tuple[str, ...]] = ("objective",)
    free: ClassVar[frozenset[str]] = frozenset(
        {
            "output",
            "checkpoint_every",
            "keep_every",
            "progress",
            "device",
            "devices",
            "logger",
        }
    )

    output: str = in_run(
        ..., description="Folder of the run: new or empty, unless --resume.", python="str | Path"
    )
    objective_settings: dict[str, float | str] = setting(
        {},
        description="Hyperparameters (--objective.temperature 0.05; on text also auto, the value "
        "that `isotrope audit` recommends) and exchanged components (--objective.dissipation "
        "margin:0.3).",
        python="Mapping[str, float | str]",
    )
    plugin: list[str] = in_objective(
        [],
        description="Python file that defines objectives.",
        python="str | Path | list[str | Path]",
    )
    micro_batch: int | None = in_steps(
        None,
        ge=1,
        description="Number of inputs to encode at a time, to save memory. The gradient is still "
        "that of the whole batch. Costs one more forward pass.",
    )
    backend: Literal["auto", "eager", "rowblock", "bfloat16", "triton"] = in_objective(
        "auto",
        description="How to compute the loss. eager stores all similarities of a batch, rowblock "
        "stores a block of rows at a time, bfloat16 is rowblock with rounded products, triton "
        "stores none in the GPU's memory; auto chooses by size.",
    )
    cut: float = in_model(
        1.0,
        gt=0,
        description="Experimental: divisor of the initial weights (cut-initialization, Draganov "
        "et al., 2024: 3 for contrastive methods, 9 for others). In our trainings it helped at "
        "1/30 of the recipe's learning rate and hurt at the full rate. Pretrained weights are "
        "not divided.",
    )
    cut_what: Literal["weights", "all"] = in_model(
        "weights",
        description="Parameters to cut: weights (as in the paper) or all (as in its code).",
    )
    max_steps: int | None = in_steps(None, ge=1, description="Number of steps after which to stop.")
    precision: Literal["32", "bf16", "16"] = in_hardware(
        "32", description="Numeric precision of the encoder."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = in_hardware(
        "auto", description="Device to train on."
    )
    devices: int = in_hardware(
        1,
        ge=1,
        description="Processes that share every batch, each with its own GPU or its share of the "
        "CPU. The gradient equals that of one process. Use torchrun for several machines.",
    )
    seed: int = in_run(42, ge=0, lt=2**32, description="Seed of all random numbers.")
    checkpoint_every: int = in_run(500, ge=1, description="Steps between checkpoints.")
    keep_every: int | None = in_run(
        None,
        ge=1,
        description="Steps between checkpoints that are kept, in addition to those of step 0 and "
        "of the last step. Default: only the newest two are kept.",
    )
    log_every: int = in_watch(10, ge=1, description="Steps between rows of metrics.csv.")
    logger: list[Literal["tensorboard", "trackio", "wandb", "mlflow"]] = in_watch(
        ["tensorboard"],
        description="Loggers in addition to metrics.csv; without a name, none. Install trackio, "
        "wandb or mlflow first; they read project, mode and server from their own environment "
        "variables.",
        python="str | list[str]",
    )
    progress: bool = in_watch(True, description="Show a progress bar, or lines without a terminal.")

    # the names of subclasses' fields too
    @field_validator(*_LISTS, mode="before", check_fields=False)
    @classmethod
    def _listed(cls, value: object) -> object:
        """Wrap a single value in a list."""
        if isinstance(value, (str, Path)):
            return [str(value)]
        if not isinstance(value, (list, tuple)):
            return value
        return [str(v) if isinstance(v, Path) else v for v in value]

    @field_validator(*_PLACES, mode="before", check_fields=False)
    @classmethod
    def _path(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @field_validator(*_PLACES, "groups", mode="after", check_fields=False)
    @classmethod
    def _nameable(cls, value: str | list[str] | None) -> str | list[str] | None:
        """Names go into config.yaml and system calls; ``~`` is the home folder, as in a shell."""
        if value is None:
            return None
        names = value if isinstance(value, list) else [value]
        for name in names:
            if not name or {"\0", "\n", "\r"} & set(name) or not _in_utf8(name):
                raise ValueError("a name must be one line of UTF-8 text")
        return [*map(from_home, names)] if isinstance(value, list) else from_home(value)

    @field_validator(
        "columns", "query_prompt", "passage_prompt", "lora_targets", check_fields=False
    )
    @classmethod
    def _written(cls, value: str | list[str]) -> str | list[str]:
        """Texts go into config.yaml and result.json."""
        for text in value if isinstance(value, list) else [value]:
            if "\0" in text or not _in_utf8(text):
                raise ValueError("a text must be UTF-8 without NUL")
        return value

    @field_validator("precision", mode="before")
    @classmethod
    def _bits(cls, value: object) -> object:
        """Take a number for its digits: YAML reads 32 as a number."""
        return str(value) if isinstance(value, int) else _PRECISIONS.get(str(value), value)

    @property
    @abstractmethod
    def inputs(self) -> list[str]:
        """The files and folders that are trained on."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of examples in a batch, over all devices."""

    @classmethod
    def ordered(cls) -> dict[str, FieldInfo]:
        """Return the fields in the order of the help: specific fields first, shared ones last."""
        shared = RunSettings.model_fields
        return {k: v for k, v in cls.model_fields.items() if k not in shared} | {
            k: v for k, v in cls.model_fields.items() if k in shared
        }

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return all dotted setting names, over all objectives."""
        return objective_settings()

    def to_yaml(self) -> str:
        """Return the settings as the YAML that ``--config`` reads."""
        values = self.model_dump()
        fields = {k: v for k, v in self.ordered().items() if k not in self.collected()}
        # an empty list says something where another is the default: no logger at all
        usual = {k: v.get_default(call_default_factory=True) for k, v in fields.items()}
        listed = {
            flag(name): values[name]
            for name in fields
            if values[name] not in (None, []) or (values[name] == [] and usual[name])
        }
        for prefix, name in zip(self.dotted, self.collected(), strict=True):
            listed |= {f"{prefix}.{k}": v for k, v in values[name].items()}
        return str(yaml.safe_dump(listed, sort_keys=False, allow_unicode=True))


class TrainSettings(RunSettings):
    """Settings of a training on text; every field has its help, default and bounds here."""

    kind = "text"
    module = "isotrope.training.text"
    dotted = ("objective", "loss")

    files: list[str] = in_data(
        ...,
        min_length=1,
        positional=True,
        metavar="FILE",
        description="Text (.txt, one sentence a line) or a table (.tsv, .csv, .jsonl, .json, "
        ".parquet) of pairs with any number of hard negatives, of labelled texts or of single "
        "texts. Text files may be gzipped. Also folders of these, Hugging Face dataset folders "
        "(save_to_disk), or user/dataset, whose training split is read from the hub. NAME=FILE "
        "defines several data sets, and each batch comes from one of them: qa=pairs.tsv "
        "nli=nli.tsv.",
    )
    encoder: str = in_model(
        "all-MiniLM-L6-v2",
        description="Model folder, run folder, hub id, the installed all-MiniLM-L6-v2, or "
        "'scratch': a small encoder built here, with a tokenizer trained on the text.",
        python="str | Path",
    )
    objective: str = in_objective(
        "infonce",
        description="Name of the objective, see `isotrope objectives`; or one for each data set: "
        "qa=infonce,nli=met, with settings such as --objective.nli.margin 0.3.",
        python="OneObjective | Mapping[str, OneObjective]",
    )
    loss: str | None = in_objective(
        None,
        description="Loss of sentence-transformers to train with instead of an objective, with "
        "arguments such as --loss.guide all-MiniLM-L6-v2: GISTEmbedLoss. It takes pairs or, like "
        "CoSENTLoss and MarginMSELoss, scored pairs; GD, W and R are not logged.",
    )
    loss_settings: dict[str, float | str] = setting(
        {}, description="Arguments of the loss.", python="Mapping[str, float | str]"
    )
    sampling: Sampling = in_data(
        "proportional",
        description="How to draw from several data sets. proportional: every batch of each data "
        "set once in an epoch, in random order. round-robin: one batch of each in turn, until "
        "the smallest is used up.",
    )
    recipe: Literal["auto", "papers"] = in_steps(
        "auto",
        description="How to choose settings that you leave out. auto: by the data and the "
        "encoder, unless you name an objective or the encoder is built from scratch. papers: the "
        "defaults listed here, which are SimCSE's.",
    )
    columns: list[Annotated[str, Field(coerce_numbers_to_str=True)]] = in_data(
        [],
        description="Columns of a table that hold the text, or anchor, positive and hard "
        "negatives: --columns question,answer.",
        python="str | list[str] | list[int]",
    )
    groups: str | None = in_data(
        None,
        coerce_numbers_to_str=True,
        description="Column of a table. Rows with equal values in it are not pushed apart. For "
        "grouped.jsonl of `isotrope audit`: --groups label.",
        python="str | int | None",
    )
    views: Literal["auto", "dropout", "adjacent", "pairs"] = in_data(
        "auto",
        description="Where the positive comes from: the same text with another dropout mask, the "
        "next text of the document, or the file's second column. auto takes pairs if there is a "
        "second column, otherwise dropout.",
    )
    query_prompt: str = in_data("", description="Text to put before every anchor of pairs.")
    passage_prompt: str = in_data("", description="Text to put before all other texts of pairs.")
    dev: str | None = in_watch(
        None,
        description="Data to score during training: an STS file, a retrieval folder, a file of "
        "pairs, or 'auto', which scores a held-out part of your text without labels. The best "
        "step is saved, step 0 included.",
        python="str | Path | None",
    )
    dev_metric: Literal["mrr@10", "ndcg@10"] = in_watch(
        "mrr@10",
        description="Dev score of a ranking (scored pairs: Spearman's correlation).",
    )
    eval_every: int = in_watch(
        125, ge=0, description="Steps between dev evaluations; 0: only before and after training."
    )
    prefer: Literal["best", "trained"] = in_watch(
        "best",
        description="Model to save. best: the model of the step with the best dev score. "
        "trained: the model of the last step, unless it is worse than the original by more than "
        "a standard error.",
    )
    patience: int | None = in_watch(
        None,
        ge=1,
        description="Early stopping: number of dev evaluations without a new best score after "
        "which the run ends. Needs --dev.",
    )
    holdout: float = in_data(
        0.0, ge=0, le=0.5, description="Share of the records to hold out (0.1 with --dev auto)."
    )
    batch_size: int = in_steps(64, ge=2, description="Sentences or pairs per step, on all devices.")
    epochs: float = in_steps(1.0, gt=0, description="Passes over the data (or --max-steps).")
    minutes: float | None = in_steps(
        None,
        gt=0,
        description="Minutes to plan for. --recipe auto measures a step, and skips the second "
        "training or trains for fewer epochs if necessary.",
    )
    streaming: int | None = in_data(
        None,
        ge=2,
        description="Number of records to read and shuffle at a time while training, for data "
        "that do not fit on the disk. Needs --max-steps.",
    )
    learning_rate: float = in_steps(3e-5, gt=0, description="Highest learning rate.")
    warmup: float = in_steps(
        0.0,
        ge=0,
        description="Number of steps in which the learning rate rises to --learning-rate; below "
        "1, a share of all steps.",
    )
    scheduler: Scheduler = in_steps(
        "linear",
        description="Learning-rate schedule after the warm-up.",
    )
    weight_decay: float = in_steps(
        0.0, ge=0, description="Weight decay of AdamW, for all weights except biases and norms."
    )
    clip: float = in_steps(1.0, gt=0, description="Norm above which gradients are clipped.")
    between: float = in_steps(
        1.0,
        gt=0,
        le=1,
        description="Position of the saved weights between the original weights (0) and the "
        "trained ones (1). With a value below 1, such as 0.7, the model forgets less.",
    )
    refit: bool = in_steps(
        False,
        description="Train a second time with the next seed, also on the held-out records, and "
        "save the mean of both models' weights. Skipped if the original model was kept, and with "
        "LoRA, an encoder from scratch or torchrun.",
    )
    gradient_checkpointing: bool = in_steps(
        False,
        description="Store only the inputs of each layer and recompute the rest in the backward "
        "pass. Needs less memory and more time; the gradient is the same.",
    )
    max_length: int = in_data(32, ge=3, description="Tokens to which texts are cut in training.")
    pooling: str | None = in_model(
        None, description="mean, cls, max, ...; default: the model's own (mean if it has none)."
    )
    head: Literal["mlp", "linear", "none"] = in_model(
        "mlp",
        description="Network on top of the encoder in training only; it is not saved. mlp is a "
        "linear layer and a tanh (Gao et al. 2021), linear is the layer alone (Li et al. 2024).",
    )
    freeze: Literal["none", "embeddings"] = in_model(
        "none",
        description="Parts that are not trained: embeddings (vectors of words and positions, and "
        "their layer norm; Li et al. 2024), or none.",
    )
    dropout: float | None = in_model(
        None,
        ge=0,
        lt=1,
        description="Dropout rate of the encoder; default: the rate in its configuration.",
    )
    matryoshka: list[int] = in_model(
        [],
        description="Lengths of shorter embeddings to train: the first coordinates of the whole "
        "embedding. The loss is the mean over all lengths. Needs --head none.",
    )
    lora: int | None = in_model(
        None,
        ge=1,
        description="Rank of LoRA's matrices, which are trained instead of the encoder's weights "
        "and merged into the saved model (pip install '.[lora]' in a checkout).",
    )
    lora_alpha: int | None = in_model(
        None, ge=1, description="LoRA's matrices are scaled by alpha / rank; default: 2 x rank."
    )
    lora_targets: list[str] = in_model(
        [],
        description="Layers to adapt: query,value or all-linear; default: peft's choice for the "
        "architecture, or all-linear if it has none.",
        python="str | list[str]",
    )

    @field_validator("matryoshka")
    @classmethod
    def _positive(cls, value: list[int]) -> list[int]:
        if any(d < 1 for d in value):
            raise ValueError("lengths must be at least 1")
        return value

    @field_validator("warmup")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value >= 1 and value != int(value):
            raise ValueError("give a whole number of steps, or a share of all steps below 1")
        return value

    @field_validator("patience")
    @classmethod
    def _watched(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("dev") is None:
            raise ValueError("early stopping needs a dev score; add `--dev`")
        return value

    @field_validator("streaming")
    @classmethod
    def _streamed(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is None:
            return value
        known = info.data
        if known.get("max_steps") is None:
            raise ValueError("needs `--max-steps`, because the length of streamed data is unknown")
        if known.get("devices", 1) > 1:
            raise ValueError(f"reads in one process; leave `--devices {known['devices']}` out")
        if len(by_dataset(known.get("files", []))) > 1:
            raise ValueError("streams one data set; leave out the names of several (NAME=FILE)")
        if value < known.get("batch_size", 0):
            raise ValueError(f"holds less than a batch of {known['batch_size']}; give a larger one")
        return value

    @field_validator("columns", "lora_targets", mode="after")
    @classmethod
    def _split(cls, value: list[str]) -> list[str]:
        """``anchor,positive`` means two names."""
        names = [name.strip() for item in value for name in item.split(",")]
        if not all(names):
            raise ValueError("one of the names is empty")
        return names

    @property
    def held_out(self) -> float:
        """The share of held-out text: ``--dev auto`` needs some."""
        return 0.1 if self.dev == "auto" and self.holdout == 0 else self.holdout

    @property
    def inputs(self) -> list[str]:
        """The files and folders that are trained on."""
        return [file for files in self.datasets.values() for file in files]

    @property
    def datasets(self) -> dict[str, list[str]]:
        """The files of each data set; a single data set has the name ``""``."""
        return by_dataset(self.files)

    @property
    def rows(self) -> int:
        """Number of examples in a batch, over all devices."""
        return self.batch_size


_PRECISIONS = {
    **dict.fromkeys(("fp32", "float32", "32-true"), "32"),
    **dict.fromkeys(("fp16", "float16", "16-mixed"), "16"),
    **dict.fromkeys(("bfloat16", "bf16-mixed"), "bf16"),
}
"""Spellings used by other libraries."""


def _in_utf8(text: str) -> bool:
    """Return whether a text can be written; half of a surrogate pair cannot."""
    return text.encode("utf-8", "ignore").decode("utf-8") == text
