"""Small text and quick settings for tests that really train."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from isotrope.encoders.sentence import SentenceEncoder

WORDS = (  # noqa: SIM905 - a list of 26 quoted words reads worse
    "river stone cloud engine garden mirror ocean paper rocket silver tiger violet winter yellow "
    "anchor bridge candle desert forest guitar harbor island jungle kettle lantern meadow"
).split()


def sentences(count: int, seed: int = 0) -> list[str]:
    """Made-up sentences of 8 to 20 words."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(8, 20))) for _ in range(count)]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(sentences(300)) + "\n", encoding="utf-8")
    return file


QUICK = {
    "encoder": "scratch",
    "recipe": "papers",
    "batch_size": 16,
    "max_steps": 6,
    "log_every": 2,
    "eval_every": 3,
    "checkpoint_every": 2,
    "seed": 7,
    "progress": False,
}


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small encoder, built once: ``scratch`` would learn the same vocabulary in every run."""
    folder = tmp_path_factory.mktemp("small") / "encoder"
    SentenceEncoder.scratch(sentences(300), seed=7, width=32).save(folder)
    return str(folder)


@pytest.fixture
def quick(corpus: Path, encoder_folder: str, tmp_path: Path) -> dict[str, Any]:
    """Settings of a run of half a second: a small encoder, six steps."""
    own = {"encoder": encoder_folder, "files": [str(corpus)]}
    return {**QUICK, **own, "output": str(tmp_path / "run")}


IMAGES = {
    "data": "digits",
    "limit": 32,
    "encoder": "resnet9",
    "width": 4,
    "batch_size": 16,
    "max_steps": 3,
    "checkpoint_every": 1,
    "knn_every": 0,
    "linear": False,
    "progress": False,
}


@pytest.fixture(params=["text", "images"])
def kind(request: pytest.FixtureRequest) -> str:
    """Of a run: its test is one of both."""
    return str(request.param)


@pytest.fixture
def settings(kind: str, quick: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run of six steps, with a checkpoint after each."""
    own = quick if kind == "text" else {**IMAGES, "log_every": 2, "output": quick["output"]}
    return {**own, "max_steps": 6, "checkpoint_every": 1}


@pytest.fixture
def train(kind: str) -> Callable[..., Any]:
    """What trains."""
    from isotrope.training.fit_text import fit
    from isotrope.training.images.train import fit_images

    return fit if kind == "text" else fit_images
