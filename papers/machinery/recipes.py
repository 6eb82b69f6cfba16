"""Recipes: the settings of the trainings that several papers share, at the three scales.

Text at ``cpu`` scale: a sentence encoder disturbed by filling in words, one pass over 3,200
Wikipedia sentences of at most 14 words in batches of 32, three seeds, training and measuring in
bfloat16. The head that papers train with is left out, so that what is trained is what is measured.
``paper`` is the papers' own: BERT-base, a million sentences, batch 128, one pass, the head in
training only.

Images at ``cpu`` scale: 5,000 images of CIFAR-10 (500 a class), ResNet-18 with the CIFAR stem and
16 channels in its first stage, batch 64, the crops of Draganov et al.'s code. ``paper`` is
Manna et al.'s: ResNet-18, batch 128, 200 epochs.

``smoke`` trains for a few steps on documentation and digits: it shows that everything runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob, brief

SEEDS: dict[Scale, tuple[int, ...]] = {"smoke": (0,), "cpu": (0, 1, 2), "paper": (0, 1, 2)}

_LOOKS = ["dev", "probes", "closeness", "angles", "cosines", "hardest", "lemma", "ratios"]

_TEXT: dict[Scale, dict[str, Any]] = {
    "smoke": {
        "texts": "docs:96",
        "encoder": "scratch",
        "scored": "docs",
        "head": "none",
        "batch_size": 16,
        "max_length": 12,
        "learning_rate": 1e-3,
        "max_steps": 4,
        "keep_every": 2,
        "held": [2, 16],
    },
    "cpu": {
        "texts": "wiki-short:3200",
        "encoder": "standin-mlm",
        "scored": "sts",
        "head": "none",
        "pooling": "cls",
        "batch_size": 32,
        "max_length": 24,
        "learning_rate": 5e-5,
        "precision": "bf16",
        "measured_in": "bf16",
        "max_steps": 100,
        "keep_every": 25,
        "held": [4, 128],
    },
    "paper": {
        "texts": "wiki1m_for_simcse.txt",
        "encoder": "bert-base-uncased",
        "scored": "sts",
        "head": "mlp",
        "pooling": "cls",
        "batch_size": 128,
        "max_length": 32,
        "learning_rate": 1e-5,
        "epochs": 1.0,
        "keep_every": 1250,
    },
}
_SCORES: dict[Scale, dict[str, Any]] = {
    "smoke": {"scores": ["sts", "CR"], "ends": ["last"], "mode": "prototyping"},
    "cpu": {"scores": ["sts"], "ends": ["last"]},
    "paper": {
        "scores": ["sts", "MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"],
        "ends": ["best"],
        "mode": "full",
    },
}

_IMAGES: dict[Scale, dict[str, Any]] = {
    "smoke": {
        "data": "digits",
        "limit": 128,
        "encoder": "resnet9",
        "width": 4,
        "batch_size": 32,
        "augment": "p3",
        "epochs": 2,
        "knn_every": 1,
        "log_every": 1,
    },
    "cpu": {
        "data": "cifar10",
        "limit": 5000,
        "encoder": "resnet18",
        "width": 16,
        "batch_size": 64,
        "augment": "p3",
        "precision": "bf16",
        "epochs": 8,
        "knn_every": 2,
        "log_every": 6,
    },
    "paper": {
        "data": "cifar10",
        "encoder": "resnet18",
        "batch_size": 128,
        "epochs": 200,
        "knn_every": 1,
        "log_every": 50,
    },
}


def smaller_text(scale: Scale, job: PaperJob) -> list[str]:
    """Return a note on how a training at ``cpu`` scale differs from the papers'; none at others."""
    if scale != "cpu":
        return []
    settings = job.settings
    return [
        "smaller than the paper's: a disturbed sentence encoder (all-MiniLM-L6-v2 after 1,924 "
        "steps of filling in words), which "
        f"is not raw as BERT-base is; {settings['max_steps']} steps of "
        f"{settings['batch_size']} short sentences at {settings['learning_rate']:g} instead of "
        "one pass over a million with the paper's batches and rates, and no head"
    ]


def text_jobs(
    scale: Scale,
    objective: str,
    settings: Mapping[str, float | str] | None = None,
    *,
    scored: bool = True,
    seeds: Sequence[int] | None = None,
    **more: Any,
) -> list[PaperJob]:
    """Return a training on text, one job for each seed."""
    training = {"objective": objective, **_dotted("objective", settings)}
    base = {**_TEXT[scale], "looks": _LOOKS, **(_SCORES[scale] if scored else {})}
    chosen = SEEDS[scale] if seeds is None else seeds
    title = _title(objective, settings, base, more)
    return [PaperJob("text", {**base, **training, **more}, seed, title) for seed in chosen]


def image_jobs(
    scale: Scale,
    method: str = "simclr",
    objective: str | None = None,
    settings: Mapping[str, float | str] | None = None,
    *,
    seeds: Sequence[int] | None = None,
    **more: Any,
) -> list[PaperJob]:
    """Return a training on images, one job for each seed."""
    base: dict[str, Any] = {"method": method, **_dotted("objective", settings)}
    if objective is not None:
        base["objective"] = objective
    chosen = SEEDS[scale] if seeds is None else seeds
    name = method if objective is None else f"{method} {objective}"
    title = _title(name, settings, _IMAGES[scale], more)
    return [PaperJob("images", {**_IMAGES[scale], **base, **more}, seed, title) for seed in chosen]


def _title(
    name: str,
    settings: Mapping[str, float | str] | None,
    base: Mapping[str, Any],
    more: Mapping[str, Any],
) -> str:
    """A training and its differences from the recipe."""
    others = {k: v for k, v in more.items() if k not in base or base[k] != v}
    return " ".join([name, brief({**(settings or {}), **others})]).strip()


def _dotted(prefix: str, settings: Mapping[str, float | str] | None) -> dict[str, float | str]:
    return {f"{prefix}.{name}": value for name, value in (settings or {}).items()}
