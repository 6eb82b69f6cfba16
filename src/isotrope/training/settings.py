"""Declares the settings of a training on text once, for flags, YAML keys and Python arguments.

Each field is a flag (``batch_size`` is ``--batch-size``), a key of the YAML file (``batch-size:``)
and an argument of ``isotrope.fit``. ``training.run_settings`` has those that trainings on images
share. Defaults: SimCSE's (Gao et al. 2021), or ours.
"""

from dataclasses import replace
from functools import partial
from typing import Literal

from pydantic import field_validator

from isotrope.core.settings import BY_RECIPE, Auto, Names, Used, setting
from isotrope.data.sources import Sampling, dataset_files
from isotrope.evaluation import RankMetric
from isotrope.training.recipe import Scheduler
from isotrope.training.run_settings import (
    RunSettings,
    in_data,
    in_model,
    in_objective,
    in_steps,
    in_watch,
    logged_every,
    no_loss,
    of_objective,
)

of_trained = Used(
    lambda encoder: encoder != "scratch", "leave it out: scratch has no trained weights to keep"
)
no_prompt = Used(
    lambda prompt: not prompt,
    "set no prompt, or remove default_prompt_name from config_sentence_transformers.json: the "
    "encoder puts its own prompt {prompt!r} before every text",
)
with_dev = Used(lambda dev: dev is not None, "add `--dev`: there is no dev score", note=True)
with_lora = Used(lambda lora: lora, "add `--lora RANK`: this setting is only for LoRA")
of_dev = partial(in_watch, used=with_dev)

OF_SCORES = ("CoSENTLoss", "AnglELoss", "CosineSimilarityLoss", "MarginMSELoss", "DistillKLDivLoss")
"""Losses of sentence-transformers for scored pairs; the last two also take scored negatives."""


class TrainSettings(RunSettings):
    """Settings of a training on text; each field has a help text, a default and bounds."""

    kind = "text"
    module = "isotrope.training.text"
    dotted = ("objective", "loss")

    files: list[str] = in_data(
        ...,
        "Text (.txt, one sentence a line) or a table (.tsv, .csv, .jsonl, .json, .parquet, .arrow) "
        "of single texts, labelled texts, or pairs with any number of hard negatives. Text files "
        "may be compressed (.gz, .bz2, .xz, .zst). Or a folder of such files, a Hugging Face "
        "dataset folder (save_to_disk), or user/dataset, whose training split is read from the "
        "hub. NAME=FILE defines several data sets, such as qa=pairs.tsv nli=nli.tsv; each batch "
        "comes from one data set.",
        min_length=1,
        positional=True,
        metavar="FILE",
    )
    encoder: str = in_model(
        "all-MiniLM-L6-v2",
        "Model folder, run folder or hub id; or the installed all-MiniLM-L6-v2. scratch: a small "
        "encoder with random weights, and a tokenizer trained on the text.",
        python="str | Path",
    )
    objective: Auto[str] = of_objective(
        "infonce",
        "Name of the objective (see `isotrope objectives`). Several data sets may have different "
        "objectives: qa=infonce,nli=met, with settings such as --objective.nli.margin 0.3.",
        python="str | Objective | Mapping[str, str | Objective]",
    )
    loss: Auto[str | None] = in_objective(
        None,
        "Loss of sentence-transformers, in place of an objective. For pairs: GISTEmbedLoss (with "
        "--loss.guide all-MiniLM-L6-v2), for example. For scored pairs: CoSENTLoss or "
        "MarginMSELoss, for example. The components of the gradient are not logged.",
        used=Used(
            lambda loss, processes: not loss or processes == 1,
            "start one process: such a loss compares the rows of each process alone",
        ),
    )
    loss_settings: dict[str, float | str] = setting(
        {},
        "Arguments of the loss.",
        python="Mapping[str, float | str]",
        used=Used(lambda loss: loss, "add `--loss NAME`"),
    )
    sampling: Sampling = in_data(
        "proportional",
        "Order of batches from several data sets. proportional: an epoch has every batch of each "
        "data set once, in random order. round-robin: the data sets take turns, and an epoch ends "
        "when the smallest is used up.",
        used=Used(lambda files: len(dataset_files(files)) > 1, "there is one data set", note=True),
    )
    recipe: Literal["auto", "papers"] = in_steps(
        "auto",
        "Choice of settings that you leave out. papers: SimCSE's, the defaults here. auto: by data "
        "and encoder; SimCSE's with --objective (not ntxent) or its settings (not temperature), "
        "--loss, --encoder scratch, --lora, --streaming, --views adjacent or several data sets.",
    )
    columns: Names = in_data(
        [],
        "Names or numbers of the columns to read: a text, or anchor, positive and negatives. "
        "--columns text,label=intent reads the column intent as label.",
        used=Used(
            lambda mixed: not mixed,
            "name all columns 'anchor' and 'positive', or 'text': some data sets are in memory",
        ),
        python="str | list[str] | list[int]",
    )
    groups: str | None = in_data(
        None,
        "Column of groups. Rows of a group are not pushed apart; --columns text,label=COLUMN also "
        "pulls them together. For grouped.jsonl of `isotrope audit`, use --groups label.",
        coerce_numbers_to_str=True,
        python="str | int | None",
        used=[
            no_loss,
            Used(lambda pushes: pushes, "the objective pushes no rows apart", note=True),
        ],
    )
    views: Literal["auto", "dropout", "adjacent", "pairs"] = in_data(
        "auto",
        "Positive of each text. dropout: the same text with another dropout mask. adjacent: the "
        "next text of the document. pairs: the text in the second column. auto: pairs if there is "
        "a second column, otherwise dropout.",
    )
    query_prompt: Auto[str] = in_data("", "Text to put before anchors.", used=no_prompt)
    passage_prompt: Auto[str] = in_data(
        "",
        "Text to put before positives and hard negatives.",
        used=[
            no_prompt,
            Used(
                lambda single, query_prompt, passage_prompt: (
                    not single or passage_prompt == query_prompt
                ),
                "training uses only the query prompt; the passage prompt is saved in the model",
                note=True,
            ),
        ],
    )
    dev: Auto[str | None] = in_watch(
        None,
        "Data to score the model on during training: an STS file, a retrieval folder, pairs or "
        "labelled texts. auto: a part of your text, held out of training, without labels. The "
        "score decides which model is saved (--prefer); this may be the original model.",
        python="str | Path | None",
    )
    dev_metric: Auto[RankMetric] = in_watch(
        "mrr@10",
        "Dev score of retrieval data and pairs. Scored pairs always use Spearman's correlation.",
        used=[with_dev, Used(lambda ranked: ranked, "leave it out: scored pairs are not ranked")],
    )
    eval_every: Auto[int] = in_watch(
        125,
        "Number of steps between dev scores. 0: scores only before and after training.",
        ge=0,
        used=Used(lambda dev, holdout: dev or holdout, "add `--dev`: there is no score", note=True),
    )
    prefer: Auto[Literal["best", "trained", "original"]] = of_dev(
        "best",
        "Model to save. best: the model with the best dev score. trained: the original model only "
        "if the last model is worse by more than two standard errors. original: the original model "
        "unless another is better by more than two standard errors.",
    )
    patience: int | None = in_watch(
        None,
        "Number of dev scores without a new best after which the run ends. Needs --dev. A second "
        "training (--refit) has no score, so it takes all steps.",
        ge=1,
        used=[
            replace(with_dev, note=False),
            Used(lambda eval_every: eval_every, "raise `--eval-every` above 0", note=True),
        ],
    )
    log_every: Auto[int] = logged_every()
    holdout: Auto[float] = in_data(
        0.0, "Share of records kept out of training. With --dev auto, 0 means 0.1.", ge=0, le=0.5
    )
    batch_size: Auto[int] = in_steps(64, "Number of texts or pairs per step, on all devices.", ge=2)
    epochs: Auto[float] = in_steps(1.0, "Number of epochs, unless --max-steps is given.", gt=0)
    minutes: float | None = in_steps(
        None,
        "Minutes that the command may take. --recipe auto plans the number of steps, and the time "
        "of the first steps corrects it. If time is short, there are fewer epochs or steps and no "
        "second training (--refit). Use --epochs where --recipe auto chooses nothing (see there).",
        gt=0,
        used=Used(
            lambda planned: planned,
            "use `--epochs` or `--max-steps`: `--recipe auto` chooses nothing in this run",
        ),
    )
    streaming: int | None = in_data(
        None,
        "Number of records to read and shuffle at a time during training, for data that do not "
        "fit on the disk. Needs --max-steps.",
        ge=2,
        used=[
            Used(lambda max_steps: max_steps, "add `--max-steps`: an epoch's length is unknown"),
            Used(lambda processes: processes == 1, "use a single process to stream data"),
            Used(lambda files: len(dataset_files(files)) == 1, "give a single data set to stream"),
            Used(
                lambda streaming, batch_size: streaming >= batch_size,
                "read at least as many records at a time as the batch size, {batch_size}",
            ),
            Used(lambda memory: not memory, "leave it out: the data are already in memory"),
        ],
    )
    learning_rate: Auto[float] = in_steps(3e-5, "Highest learning rate.", gt=0)
    warmup: Auto[float] = in_steps(
        0.0,
        "Number of steps in which the learning rate rises to --learning-rate. A number below 1 is "
        "a share of all steps.",
        ge=0,
    )
    scheduler: Scheduler = in_steps("linear", "Learning-rate schedule after the warm-up.")
    weight_decay: float = in_steps(
        0.0, "Weight decay of AdamW, for all weights except biases and norms.", ge=0
    )
    clip: float = in_steps(1.0, "Norm above which gradients are clipped.", gt=0)
    between: Auto[float] = in_steps(
        1.0,
        "Position of the saved weights on the line from the original weights (0) to the trained "
        "weights (1). With a value below 1, such as 0.7, the model forgets less.",
        gt=0,
        le=1,
    )
    refit: Auto[bool] = in_steps(
        False,
        "After the training, train a second model on all records, with the next seed, and save the "
        "mean of both. Not with --lora, --encoder scratch or torchrun, nor if the original model "
        "is saved. With several --devices, --recipe auto does not choose it.",
        used=[
            with_dev,
            Used(lambda averaged: averaged, "leave it out with LoRA, scratch, torchrun", note=True),
        ],
    )
    gradient_checkpointing: bool = in_steps(
        False,
        "Store only the inputs of each layer and recompute the rest in the backward pass. This "
        "needs less memory and more time; the gradient is the same.",
    )
    max_length: Auto[int] = in_data(32, "Maximum number of tokens; longer texts are cut.", ge=3)
    pooling: str | None = in_model(
        None,
        "Pooling: mean, cls, max, ... Default: the pooling in the model folder, otherwise mean.",
        used=Used(
            lambda encoder, pooling: encoder != "scratch" or pooling == "mean",
            "leave it out: an encoder from scratch has mean pooling",
        ),
    )
    head: Auto[Literal["mlp", "linear", "none"]] = in_model(
        "mlp",
        "Network on top of the encoder, for training only; it is not saved. mlp: a linear layer "
        "and a tanh (Gao et al. 2021). linear: only a linear layer (Li et al. 2024).",
    )
    freeze: Literal["none", "embeddings"] = in_model(
        "none",
        "Part of the encoder that is not trained. none: all parts are trained. embeddings: vectors "
        "of tokens and positions, and their layer norm (Li et al. 2024).",
        used=[
            of_trained,
            Used(lambda lora: lora is None, "LoRA already freezes the encoder", note=True),
        ],
    )
    dropout: float | None = in_model(
        None, "Dropout rate of the encoder. Default: the rate in the model's files.", ge=0, lt=1
    )
    matryoshka: list[int] = in_model(
        [],
        "Lengths of shorter embeddings to train as well: the first coordinates of the whole "
        "embedding. The loss is the mean over all lengths. Needs --head none.",
        used=[
            no_loss,
            Used(
                lambda matryoshka, dimension: {*matryoshka} != {dimension},
                "leave it out: the full length is always trained",
                note=True,
            ),
            Used(
                lambda matryoshka, dimension: max(matryoshka) <= dimension,
                "give lengths up to {dimension}, the length of the embeddings",
            ),
            Used(
                lambda head, dimension: head == "none",
                "add `--head none`: a head mixes all coordinates",
            ),
        ],
    )
    lora: int | None = in_model(
        None,
        "Rank of LoRA's matrices. They are trained in place of the encoder's weights, and merged "
        "into the saved model. Needs peft: pip install '.[lora]' in a checkout.",
        ge=1,
        used=of_trained,
    )
    lora_alpha: int | None = in_model(
        None,
        "Alpha of LoRA: the matrices' product is multiplied by alpha / rank. Default: 2 x rank.",
        ge=1,
        used=with_lora,
    )
    lora_targets: Names = in_model(
        [],
        "Layers that LoRA adapts, such as query,value or all-linear. Default: peft's choice for "
        "the architecture, or all-linear if peft has none.",
        used=with_lora,
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
            raise ValueError("give a whole number of steps, or a number below 1 (share of steps)")
        return value

    @property
    def held_out(self) -> float:
        """The share of the records to hold out: 0.1 if ``--dev auto`` is given without a share."""
        return 0.1 if self.dev == "auto" and self.holdout == 0 else self.holdout

    @property
    def inputs(self) -> list[str]:
        """The files and folders of the training data."""
        return [file for files in self.datasets.values() for file in files]

    @property
    def datasets(self) -> dict[str, list[str]]:
        """A dict from each data set to its files; a single data set has the name ``""``."""
        return dataset_files(self.files)


CHOSEN = frozenset(n for n, x in TrainSettings.model_fields.items() if BY_RECIPE in x.metadata)
"""The settings that ``--recipe auto`` chooses if they are missing; the help says so."""
LIMITED = frozenset(("epochs", "max_steps"))
"""The settings that ``--minutes`` lowers, even if they are given."""
