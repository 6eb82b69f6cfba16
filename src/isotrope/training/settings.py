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

from isotrope.core.files import atomic_replace, from_home
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
"""Fields, by the title under which the help lists them."""


class RunSettings(Settings, ABC):
    """The settings that trainings on text and on images share.

    Attributes:
        kind: the kind of the run: which module trains it (``isotrope.training.run``).
        free: what may differ between a run and its continuation: nothing of it changes what a step
            learns from which batch (another number of devices draws other dropout masks).
    """

    kind: ClassVar[str]
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
        ..., description="folder of the run; new or empty, unless --resume", python="str | Path"
    )
    objective_settings: dict[str, float | str] = setting(
        {},
        description="hyperparameters (--objective.temperature 0.05; auto, on text: what `isotrope "
        "audit` recommends) and exchanged components (--objective.dissipation margin:0.3)",
        python="Mapping[str, float | str]",
    )
    plugin: list[str] = in_objective(
        [],
        description="Python file with an objective of your own",
        python="str | Path | list[str | Path]",
    )
    micro_batch: int | None = in_steps(
        None,
        ge=1,
        description="inputs that go through the encoder at a time: its memory grows with this "
        "number, and the gradient is still that of the whole batch; takes one more forward pass",
    )
    backend: Literal["auto", "eager", "rowblock", "bfloat16", "triton"] = in_objective(
        "auto",
        description="what computes the loss: eager holds all similarities of a batch, rowblock a "
        "block of rows at a time, bfloat16 the same with rounded products, triton none in a GPU's "
        "memory; auto chooses by size",
    )
    cut: float = in_model(
        1.0,
        gt=0,
        description="experimental: cut-initialization, which divides the initial weights by this "
        "number (Draganov et al., 2024: 3 for contrastive methods, 9 for others); in our trainings "
        "it helps at a thirtieth of a recipe's learning rate and does harm at the recipe's own; "
        "pretrained weights stay as they are",
    )
    cut_what: Literal["weights", "all"] = in_model(
        "weights", description="weights, as in the paper, or all parameters, as in its code"
    )
    max_steps: int | None = in_steps(None, ge=1, description="stop after this many steps")
    precision: Literal["32", "bf16", "16"] = in_hardware(
        "32", description="of the encoder's arithmetic"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = in_hardware(
        "auto", description="where to train"
    )
    devices: int = in_hardware(
        1,
        ge=1,
        description="processes that share every batch, each on a GPU of its own or on its share of "
        "the CPU; the gradient is that of one (torchrun for several machines)",
    )
    seed: int = in_run(42, ge=0, lt=2**32, description="seed of everything that is random")
    checkpoint_every: int = in_run(500, ge=1, description="steps between checkpoints")
    keep_every: int | None = in_run(
        None,
        ge=1,
        description="steps between checkpoints that stay (checkpoints/checkpoint-N, step 0 and the "
        "last too); default: only the newest two",
    )
    log_every: int = in_watch(10, ge=1, description="steps between rows of metrics.csv")
    logger: list[Literal["tensorboard", "trackio", "wandb", "mlflow"]] = in_watch(
        ["tensorboard"],
        description="where numbers go in addition to metrics.csv; trackio, wandb and mlflow take "
        "project, mode and server from their own environment variables (pip install trackio, say); "
        "without a name: nowhere else",
        python="str | list[str]",
    )
    progress: bool = in_watch(True, description="show a bar on a terminal, else lines of progress")

    # the names of subclasses' fields too
    @field_validator(
        "files", "columns", "plugin", "lora_targets", "logger", mode="before", check_fields=False
    )
    @classmethod
    def _listed(cls, value: object) -> object:
        """Wrap a single value in a list."""
        if isinstance(value, (str, Path)):
            return [str(value)]
        if not isinstance(value, (list, tuple)):
            return value
        return [str(v) if isinstance(v, Path) else v for v in value]

    @field_validator(
        "output", "dev", "encoder", "data", "classes", mode="before", check_fields=False
    )
    @classmethod
    def _path(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @field_validator(
        *("files", "plugin", "output", "dev", "encoder", "data", "classes"),
        mode="after",
        check_fields=False,
    )
    @classmethod
    def _from_home(cls, value: str | list[str] | None) -> str | list[str] | None:
        """``~`` is the home folder, also where no shell says so: in YAML, Python, --output=~/x."""
        if isinstance(value, list):
            return [from_home(name) for name in value]
        return None if value is None else from_home(value)

    @field_validator(
        *("files", "plugin", "output", "dev", "encoder", "data", "classes", "groups"),
        mode="after",
        check_fields=False,
    )
    @classmethod
    def _nameable(cls, value: str | list[str] | None) -> str | list[str] | None:
        """Names go into config.yaml, result.json and system calls."""
        for name in value if isinstance(value, list) else ["-" if value is None else value]:
            if not name or {"\0", "\n", "\r"} & set(name) or not _in_utf8(name):
                raise ValueError("a name must be one line of UTF-8 text")
        return value

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
        """How many examples make a batch, of all devices."""

    @classmethod
    def ordered(cls) -> dict[str, FieldInfo]:
        """Return the fields as a user reads them: specific fields first, shared ones last."""
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

    def save(self, path: Path) -> None:
        """Write :meth:`to_yaml` to ``path``."""
        with atomic_replace(path) as temporary:
            temporary.write_text(self.to_yaml(), encoding="utf-8")


class TrainSettings(RunSettings):
    """Settings of a training on text; every field has its help, default and bounds here."""

    kind = "text"

    files: list[str] = in_data(
        ...,
        min_length=1,
        positional=True,
        metavar="FILE",
        description="text (.txt one sentence a line) or a table (.tsv, .csv, .jsonl, .json, "
        ".parquet) of pairs, with any number of hard negatives, of labelled or of single texts; "
        "text files also as .gz; folders of these, Hugging Face "
        "dataset folders (save_to_disk), or user/dataset, the training split of one on the hub; "
        "NAME=FILE makes several data sets, and a batch comes from one of them: qa=pairs.tsv "
        "nli=nli.tsv",
    )
    encoder: str = in_model(
        "all-MiniLM-L6-v2",
        description="model folder, run folder, hub id, the installed all-MiniLM-L6-v2, or "
        "'scratch': a small one built here with a tokenizer trained on the text",
        python="str | Path",
    )
    objective: str = in_objective(
        "infonce",
        description="name, see `isotrope objectives`; one for each data set: qa=infonce,nli=met, "
        "with settings such as --objective.nli.margin 0.3",
        python="OneObjective | Mapping[str, OneObjective]",
    )
    sampling: Sampling = in_data(
        "proportional",
        description="with several data sets: every batch of each of them once an epoch, in random "
        "order, or one batch of each in turn until the smallest is used up",
    )
    recipe: Literal["auto", "papers"] = in_steps(
        "auto",
        description="how settings that are not given are chosen: auto, by the data and the encoder "
        "(unless a loss is named or the encoder is built here); papers, the defaults listed here, "
        "which are SimCSE's",
    )
    columns: list[Annotated[str, Field(coerce_numbers_to_str=True)]] = in_data(
        [],
        description="columns of a table that hold the text, or anchor, positive and hard "
        "negatives: --columns question,answer",
        python="str | list[str] | list[int]",
    )
    groups: str | None = in_data(
        None,
        coerce_numbers_to_str=True,
        description="column of a table: rows that are equal in it are "
        "not pushed apart, as in grouped.jsonl of `isotrope audit`: --groups label",
        python="str | int | None",
    )
    views: Literal["auto", "dropout", "adjacent", "pairs"] = in_data(
        "auto",
        description="where the positive comes from: the same text through another dropout mask, "
        "the next text of the document, or the file's second column; auto: pairs if there is one, "
        "else dropout",
    )
    query_prompt: str = in_data("", description="put before every anchor of pairs")
    passage_prompt: str = in_data("", description="put before every positive and negative of pairs")
    dev: str | None = in_watch(
        None,
        description="what to watch: an STS file, a retrieval folder or pairs file, or 'auto', a "
        "label-free score on text held out of your own; the best step is kept, step 0 included",
        python="str | Path | None",
    )
    eval_every: int = in_watch(
        125, ge=0, description="steps between dev evaluations; 0: before and after training only"
    )
    patience: int | None = in_watch(
        None,
        ge=1,
        description="early stopping: end the run when this many dev evaluations in a row have not "
        "risen above the best one; needs --dev",
    )
    holdout: float = in_data(
        0.0, ge=0, le=0.5, description="share of the records never trained on (dev auto: 0.1)"
    )
    batch_size: int = in_steps(64, ge=2, description="sentences (or pairs) a step, of all devices")
    epochs: float = in_steps(1.0, gt=0, description="passes over the data, unless --max-steps")
    streaming: int | None = in_data(
        None,
        ge=2,
        description="for data that do not fit on the disk: read them while training, this many "
        "records at a time, which are shuffled among themselves; needs --max-steps",
    )
    learning_rate: float = in_steps(3e-5, gt=0, description="peak")
    warmup: float = in_steps(
        0.0,
        ge=0,
        description="steps in which the learning rate rises to its peak; below 1, their share of "
        "all steps",
    )
    scheduler: Scheduler = in_steps(
        "linear",
        description="how the learning rate falls from its peak to 0 at the last step, if it does",
    )
    weight_decay: float = in_steps(
        0.0, ge=0, description="of AdamW, of all weights but biases and those of norms"
    )
    clip: float = in_steps(1.0, gt=0, description="gradients are clipped to this norm")
    between: float = in_steps(
        1.0,
        gt=0,
        le=1,
        description="after the last step the weights go back to this share of the way from those "
        "before training, which forgets less (0.7, say)",
    )
    gradient_checkpointing: bool = in_steps(
        False,
        description="keep only what goes into each layer of the encoder and compute the rest again "
        "in the backward pass: less memory, more time, the same gradient",
    )
    max_length: int = in_data(32, ge=3, description="tokens a text is cut to in training")
    pooling: str | None = in_model(
        None, description="mean, cls, max, ...; default: the model's own (mean if it has none)"
    )
    head: Literal["mlp", "linear", "none"] = in_model(
        "mlp",
        description="network on top in training only, never part of the saved model: a linear "
        "layer and a tanh (Gao et al. 2021), the layer alone (Li et al. 2024), or none",
    )
    freeze: Literal["none", "embeddings"] = in_model(
        "none",
        description="embeddings: the vectors of words and positions, and the norm on them, are not "
        "trained, only the layers are (Li et al. 2024); none: everything is trained",
    )
    dropout: float | None = in_model(
        None,
        ge=0,
        lt=1,
        description="dropout rate of the encoder; default: as its configuration says",
    )
    matryoshka: list[int] = in_model(
        [],
        description="train the first coordinates, as many as each number says, to be embeddings "
        "of their own: the loss is the mean over them and the whole; needs --head none",
    )
    lora: int | None = in_model(
        None,
        ge=1,
        description="train matrices of this rank beside the encoder's own weights, which stay as "
        "they are (pip install '.[lora]' in a checkout of isotrope); the saved model has them "
        "merged",
    )
    lora_alpha: int | None = in_model(
        None, ge=1, description="the matrices are scaled by alpha / rank; default: twice the rank"
    )
    lora_targets: list[str] = in_model(
        [],
        description="layers to adapt: query,value or all-linear; default: peft's choice for "
        "the architecture, all-linear where it has none",
        python="str | list[str]",
    )

    @field_validator("matryoshka")
    @classmethod
    def _positive(cls, value: list[int]) -> list[int]:
        if any(d < 1 for d in value):
            raise ValueError("numbers of coordinates are 1 or more")
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
            raise ValueError("early stopping watches a dev score, and `--dev` is missing")
        return value

    @field_validator("streaming")
    @classmethod
    def _streamed(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is None:
            return value
        known = info.data
        if known.get("max_steps") is None:
            raise ValueError("where streamed data end is not known, and `--max-steps` is missing")
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
        """The files of each data set; where there is one, its name is ``""``."""
        return by_dataset(self.files)

    @property
    def rows(self) -> int:
        """How many examples make a batch, of all devices."""
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
