"""NaN and infinity: found within the step, and told before anything is changed by them."""

import csv
import dataclasses
import importlib
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Trainer

from isotrope.adapters.sentence_transformers import losses
from isotrope.cli.main import guarded
from isotrope.core.errors import Diverged, InputError
from isotrope.core.views import Views
from isotrope.training import trainers
from isotrope.training.checkpoints import read_checkpoint
from isotrope.training.fit_text import fit
from isotrope.training.images import method
from isotrope.training.nan_guard import NonFiniteGuard, check_finite_weights
from isotrope.training.settings import TrainSettings
from isotrope.training.trainers import RunTrainer
from tests.refused import refused
from tests.training.conftest import QUICK, sentences
from tests.training.interrupted import at, checkpoints

Fit = Callable[..., Any]


def spoil(
    patch: pytest.MonkeyPatch, kind: str, step: int, what: str, value: float = torch.nan
) -> None:
    """Have something in this step that is not finite."""
    now = {"step": -1}
    for number in range(step + 2):
        at(patch, number, lambda number=number: now.update(step=number))
    if what == "input":  # all that follows, running statistics too
        place, name = (losses, "embed_sorted") if kind == "text" else (method.ImageMethod, "crops")
        plain = getattr(place, name)

        def spoilt(*given: Any, **how: Any) -> list[Tensor]:
            found = plain(*given, **how)
            return [x * value for x in found] if now["step"] == step else found

        patch.setattr(place, name, spoilt)
        return
    place = losses if kind == "text" else method
    shared = place.shared_loss

    def loss(objective: Any, whole: Any, *, backend: str) -> Tensor:
        found = shared(objective, whole, backend=backend)
        if now["step"] != step:
            return found
        if what == "loss":
            return found * value
        if what == "gradient":
            return found + (whole.views.anchors.flatten()[0] * 0).sqrt()
        assert what == "embedding"  # which the loss does not show
        whole.views.anchors.data[0, 0] = value
        return found

    patch.setattr(place, "shared_loss", loss)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as handle:
        found = list(csv.DictReader(handle))
    return [{k: v for k, v in row.items() if not k.endswith("_per_second")} for row in found]


@pytest.mark.parametrize("what", ["loss", "embedding", "gradient", "input"])
def test_a_run_stops_within_the_step(
    kind: str,
    settings: dict[str, Any],
    train: Fit,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(monkeypatch, kind, 3, what, torch.inf if what == "embedding" else torch.nan)
    said = {"embedding": "an embedding", "input": "the loss"}.get(what, f"the {what}")
    output = Path(settings["output"])
    with pytest.raises(Diverged) as caught:
        train(**{**settings, "progress": True})
    message = str(caught.value)
    assert message.startswith(
        f"training diverged: {said} is not finite at step 3; use a lower learning_rate ("
    )
    assert ("clip=1" in message) == (kind == "images")
    told = capsys.readouterr().err
    for line in (
        "loss: ",
        "anchors: ",
        "gradient dissipation: ",
        "weight of negatives: ",
        "ratio: ",
    ):
        assert f"  {line}" in told or f" {line}" in told
    assert "parameters: " in told
    assert ("gradients: " in told) == (what == "gradient")
    checkpoint = read_checkpoint(checkpoints(output)[0])
    assert checkpoint["global_step"] == 3
    assert all(torch.isfinite(x).all() for x in checkpoint["state_dict"].values())


def test_a_diverging_run_is_one_line(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing here is made up: the learning rate is absurd."""
    output = tmp_path / "run"
    flags = ["--encoder", "scratch", "--batch-size", "16", "--learning-rate", "1e30"]
    flags += ["--no-progress", "--max-steps", "9", "--output", str(output)]
    assert guarded(["train", str(corpus), *flags]) == 2
    *before, error = capsys.readouterr().err.splitlines()
    assert error.startswith("isotrope: error: training diverged: the loss is not finite at step 1;")
    assert not any("error" in line or "Traceback" in line for line in before)


def test_the_advice_names_settings_of_the_loss_that_diverges(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--encoder", "scratch", "--batch-size", "16", "--learning-rate", "1e30"]
    flags += ["--loss", "MultipleNegativesRankingLoss", "--no-progress", "--max-steps", "9"]
    assert guarded(["train", str(corpus), *flags, "--output", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "training diverged: " in error
    assert "objective" not in error
    assert "a lower --loss.scale (it is 20)" in error


def test_weights_that_are_not_finite_are_not_saved(
    settings: dict[str, Any], train: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update of a finite gradient may break them; the step after it would see."""
    norm = RunTrainer._get_grad_norm

    def breaks(self: Any, *given: Any, **named: Any) -> float:
        found = norm(self, *given, **named)
        if self.state.global_step in broken:
            next(self.module.encoder.parameters()).data.flatten()[0] = torch.inf
        return found

    monkeypatch.setattr(RunTrainer, "_get_grad_norm", breaks)
    broken = {2}
    with pytest.raises(Diverged, match=r"After 3 steps, the weights encoder\..* are not finite"):
        train(**settings)
    assert read_checkpoint(checkpoints(settings["output"])[0])["global_step"] == 2
    broken = {5}  # the last update, which no checkpoint follows
    settings["output"] += "-last"
    with pytest.raises(Diverged, match=r"After 6 steps, the weights .* are not finite"):
        train(**settings)
    assert not (Path(settings["output"]) / "result.json").exists()
    assert not (Path(settings["output"]) / "model").exists()


# what needs no run


class Tiny(nn.Module):
    def __init__(self, *seen: Views) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.learning_rate, self.seen = 0.1, [*seen]
        self.objective = SimpleNamespace(hyperparameters=dict, has_terms=False)


def guard(*seen: Views) -> NonFiniteGuard:
    return NonFiniteGuard(Tiny(*seen), TrainSettings(files=["x"], output="y"))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_one_number_of_a_batch_is_enough(value: float, dtype: torch.dtype) -> None:
    for place in ("anchors", "positives", "negatives"):
        views = Views(*torch.ones(3, 4, 5).to(dtype))
        guard(views, views).check_forward(0, torch.tensor(1.0))
        broken = getattr(views, place).clone()
        broken[2, 3] = value
        others = dataclasses.replace(views, **{place: broken})
        with pytest.raises(Diverged, match="an embedding is not finite at step 7; use a lower"):
            guard(views, others).check_forward(7, torch.tensor(1.0))
    with pytest.raises(Diverged, match="the loss is not finite"):
        guard(views).check_forward(7, torch.tensor(value, dtype=dtype))


def test_overflow_of_a_scaled_gradient_is_the_scalers_business() -> None:
    """Until it has scaled down to nothing: then the gradient itself is not finite."""
    for scale in (65536.0, 2.0):
        guard().check_gradient(5, torch.nan, scale, "cpu")
    for scale in (1.0, 0.5, None):
        with pytest.raises(Diverged, match="the gradient is not finite at step 5"):
            guard().check_gradient(5, torch.nan, scale, "cpu")


def test_broken_weights_are_named() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    check_finite_weights(module, 3)
    module[1].bias.data[1] = torch.nan
    with pytest.raises(Diverged, match=r"After 3 steps, the weights 1\.bias are not finite"):
        check_finite_weights(module, 3)


# several processes

NAN_ON_RANK_1 = """
import os
import torch
from isotrope.objectives.infonce import InfoNCE
from isotrope.core.hyper import Paper

calls = 0

class Faulty(InfoNCE, paper=Paper("none", "none", "none")):
    def formula(self, pairs):
        global calls
        calls += len(pairs.views.positives) == 15  # not when it is tried on small batches
        found = super().formula(pairs)
        faulty = os.environ.get("RANK") == "1" and calls == 2
        return found * torch.nan if faulty else found
"""


@pytest.mark.nightly
def test_all_processes_agree(tmp_path: Path) -> None:
    """One of them sees a NaN: all end."""
    (tmp_path / "corpus.txt").write_text("\n".join(sentences(300)) + "\n")
    (tmp_path / "faulty.py").write_text(textwrap.dedent(NAN_ON_RANK_1))
    settings = {
        **QUICK,
        "files": [str(tmp_path / "corpus.txt")],
        "plugin": [str(tmp_path / "faulty.py")],
        "objective": "faulty",
        "batch_size": 15,
        "devices": 2,
        "device": "cpu",
        "max_steps": 4,
        "dropout": 0.0,
    }
    with pytest.raises(Diverged, match="the loss is not finite at step 1; use"):
        fit(**settings, output=str(tmp_path / "b"))


def test_a_trainer_without_the_hook_for_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Trainer, "_get_grad_norm")  # transformers 5.0 to 5.2
    with refused(InputError):
        importlib.reload(trainers)
