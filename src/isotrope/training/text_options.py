"""The keywords of ``isotrope.fit`` for type checkers; `make docs` writes this file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Required, TypedDict

from isotrope.paradigm.objective import Objective


class TextOptions(TypedDict, total=False):
    """The keywords of ``isotrope.fit``: the fields of ``TrainSettings`` but ``files``."""

    encoder: str | Path
    objective: str | Objective | Mapping[str, str | Objective]
    loss: str | None
    loss_settings: Mapping[str, float | str]
    sampling: Literal["proportional", "round-robin"]
    recipe: Literal["auto", "papers"]
    columns: str | list[str] | list[int]
    groups: str | int | None
    views: Literal["auto", "dropout", "adjacent", "pairs"]
    query_prompt: str
    passage_prompt: str
    dev: str | Path | None
    dev_metric: Literal["mrr@10", "ndcg@10"]
    eval_every: int
    prefer: Literal["best", "trained", "original"]
    patience: int | None
    holdout: float
    batch_size: int
    epochs: float
    minutes: float | None
    streaming: int | None
    learning_rate: float
    warmup: float
    scheduler: Literal["constant", "linear", "cosine"]
    weight_decay: float
    clip: float
    between: float
    refit: bool
    gradient_checkpointing: bool
    max_length: int
    pooling: str | None
    head: Literal["mlp", "linear", "none"]
    freeze: Literal["none", "embeddings"]
    dropout: float | None
    matryoshka: list[int]
    lora: int | None
    lora_alpha: int | None
    lora_targets: str | list[str]
    output: Required[str | Path]
    objective_settings: Mapping[str, float | str]
    plugin: str | Path | list[str | Path]
    micro_batch: int | None
    backend: Literal["auto", "eager", "rowblock", "bfloat16"]
    cut: float
    cut_what: Literal["weights", "all"]
    max_steps: int | None
    precision: Literal["32", "bf16", "16"]
    device: Literal["auto", "cpu", "cuda", "mps"]
    devices: int
    seed: int
    checkpoint_every: int
    keep_every: int | None
    log_every: int
    logger: str | list[str]
    progress: bool
