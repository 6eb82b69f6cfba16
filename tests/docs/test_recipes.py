"""Every recipe of docs/guide/trainers.md runs, or compiles where its trainer is not installed."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import docs.build
import isotrope
from isotrope.core.run_folder import RunFolder

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "trainers.md"
_, REST = PAGE.read_text(encoding="utf-8").split("## A recipe for each trainer\n")
RECIPES = dict(
    re.findall(r"^### (\S+)\n.*?```python\n(.*?)```", REST[: REST.index("\n## ")], re.S | re.M)
)
MOST_LINES = 8  # without imports and empty lines

pytestmark = pytest.mark.filterwarnings("ignore")


def infonce(a: Tensor, b: Tensor) -> Tensor:
    a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))


class BiEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 16)

    def forward(self, query: Tensor, passage: Tensor) -> dict[str, Tensor]:
        return {"loss": infonce(self.encoder(query), self.encoder(passage))}


def pairs() -> list[dict[str, Tensor]]:
    x, noise = torch.randn(2, 32, 8, generator=torch.Generator().manual_seed(0))
    return [{"query": a, "passage": a + b / 3} for a, b in zip(x, noise, strict=True)]


def sentence_transformers(folder: Path) -> dict[str, Any]:
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    from tests.adapters.trainers import columns, scratch, trainer

    model, data = scratch(), columns("anchor", "positive")
    loss = MultipleNegativesRankingLoss(model)
    args = trainer(model, loss, data, folder).args
    return {"model": model, "args": args, "dataset": data, "loss": loss}


def transformers(folder: Path) -> dict[str, Any]:
    from transformers import TrainingArguments

    args = TrainingArguments(str(folder), max_steps=2, use_cpu=True, report_to="none")
    return {"model": BiEncoder(), "args": args, "dataset": pairs()}


def loop(folder: Path) -> dict[str, Any]:
    model = nn.Linear(8, 16)
    x, noise = torch.randn(2, 16, 8, generator=torch.Generator().manual_seed(0))
    images = torch.cat([x, x + noise / 3])
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": [(images, torch.arange(16).repeat(2))] * 2,
        "loss_of": lambda model, batch: infonce(*model(batch[0]).chunk(2)),
    }


def accelerate(folder: Path) -> dict[str, Any]:
    from accelerate import Accelerator

    return {**loop(folder), "accelerator": Accelerator(cpu=True)}


def open_clip(folder: Path) -> dict[str, Any]:
    known = loop(folder)
    images, texts = known["model"](known["loader"][0][0]).chunk(2)
    return {
        "doctor": isotrope.Doctor(path=folder / "clip"),
        "loss": lambda output_dict, **found: {"contrastive_loss": infonce(**found)},
        "model_out": {"a": images, "b": texts},
        "backward": lambda loss, scaler: loss.backward(),
        "scaler": None,
    }


def pytorch_metric_learning(folder: Path) -> dict[str, Any]:
    from pytorch_metric_learning.losses import NTXentLoss

    return {**loop(folder), "loss_func": NTXentLoss(temperature=0.1)}


def lightly(folder: Path) -> dict[str, Any]:
    from tests.adapters.doctor.test_lightning import Theirs, loader

    return {"model": Theirs(), "loader": loader()}


GIVEN: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
    "sentence-transformers": ("sentence_transformers", sentence_transformers),
    "transformers": ("transformers", transformers),
    "accelerate": ("accelerate", accelerate),
    "open_clip": ("torch", open_clip),
    "pytorch-metric-learning": ("pytorch_metric_learning", pytorch_metric_learning),
    "lightly": ("lightning", lightly),
}
"""The package that a recipe needs, and the names that it does not define."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_short_and_compiles(name: str) -> None:
    compile(RECIPES[name], f"{name}.py", "exec")
    lines = [x for x in RECIPES[name].splitlines() if x and not re.match(r"import|from", x)]
    assert 2 <= len(lines) <= MOST_LINES
    assert "isotrope.Doctor(" in RECIPES[name] or "doctor.observe(" in RECIPES[name]


@pytest.mark.parametrize("name", GIVEN)
def test_a_recipe_runs_and_the_doctor_sees_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, given = GIVEN[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    doctors: list[isotrope.Doctor] = []

    class Kept(isotrope.Doctor):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings, say=None)
            doctors.append(self)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(isotrope, "Doctor", Kept)
    exec(RECIPES[name], given(tmp_path))
    assert [len(d.rows) for d in doctors] >= [1]
    assert all(loss["family"] == "softmax" for d in doctors for loss in d.losses.values())
    for doctor in doctors:
        if doctor.observes:
            doctor.finish()  # as at the end of the program
        assert doctor.path is not None
        assert RunFolder(doctor.path).diagnosis.is_file()


def test_the_skill_has_the_recipes() -> None:
    text = docs.build.SKILL.read_text(encoding="utf-8")
    assert text == docs.build.skill(text)
    assert all(recipe in text for recipe in RECIPES.values())
