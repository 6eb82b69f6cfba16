"""A tiny model, made-up texts and sentence-transformers' trainer on them."""

import random
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.training_args import (
    SentenceTransformerTrainingArguments,
)

from isotrope.encoders.sentence import SentenceEncoder

WORDS = "river stone cloud engine garden mirror ocean paper rocket silver tiger violet".split()  # noqa: SIM905


def texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=6)) for _ in range(count)]


def columns(*names: str, count: int = 32) -> Dataset:
    return Dataset.from_dict({name: texts(count, seed) for seed, name in enumerate(names)})


def scratch(
    seed: int = 0, texts: list[str] = WORDS, max_length: int = 16, **sizes: int
) -> SentenceTransformer:
    torch.manual_seed(seed)
    return SentenceEncoder.scratch(texts, max_length=max_length, **sizes).model


def trainer(
    model: SentenceTransformer, loss: torch.nn.Module, data: Dataset, folder: Path, **settings: Any
) -> SentenceTransformerTrainer:
    common = {
        "per_device_train_batch_size": 8,
        "max_steps": 4,
        "learning_rate": 1e-3,
        "use_cpu": True,
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 2,
        "disable_tqdm": True,
        "seed": 1,
    }
    callbacks = settings.pop("callbacks", None)
    evaluator, held_out = settings.pop("evaluator", None), settings.pop("eval_dataset", None)
    arguments = SentenceTransformerTrainingArguments(str(folder), **{**common, **settings})
    return SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        eval_dataset=held_out,
        loss=loss,
        evaluator=evaluator,
        callbacks=callbacks,
    )
