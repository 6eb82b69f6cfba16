"""NaN and infinity: found within the step and told, or left out without a trace."""

import csv
import dataclasses
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from isotrope.cli.main import guarded
from isotrope.core.errors import Diverged
from isotrope.core.views import Views
from isotrope.training import simcse
from isotrope.training import step as steps_of
from isotrope.training.fit_text import fit
from isotrope.training.images import method
from isotrope.training.images.registry import METHODS
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import fit_images
from isotrope.training.nan_guard import NonFiniteGuard, check_finite_weights
from isotrope.training.run import read_checkpoint
from isotrope.training.settings import TrainSettings
from tests.core.test_checksum import same
from tests.refused import refused_setting
from tests.training.conftest import IMAGES, QUICK, sentences

Fit = Callable[..., Any]
MODULES = {"text": simcse.SimCSE, "images": method.ImageMethod}


def spoil(
    patch: pytest.MonkeyPatch, kind: str, steps: set[int], what: str, value: float = torch.nan
) -> None:
    """Have something in these steps that is not finite."""
    module = MODULES[kind]
    if what == "input":  # all that follows, running statistics too
        name = "embed" if kind == "text" else "crops"
        plain = getattr(module, name)

        def spoilt(self: Any, batch: Any) -> list[Tensor]:
            found = plain(self, batch)
            return [x * value for x in found] if self.global_step in steps else found

        patch.setattr(module, name, spoilt)
        return
    shared = steps_of.shared_loss
    calls = {"step": -1}
    start = module.on_train_batch_start

    def begun(self: Any, batch: Any, batch_idx: int) -> None:
        calls["step"] = self.global_step
        start(self, batch, batch_idx)

    patch.setattr(module, "on_train_batch_start", begun)

    def loss(objective: Any, whole: Any, *, backend: str) -> Tensor:
        found = shared(objective, whole, backend=backend)
        if calls["step"] not in steps:
            return found
        if what == "loss":
            return found * value
        if what == "gradient":
            return found + (whole.views.anchors.flatten()[0] * 0).sqrt()
        assert what == "embedding"  # which the loss does not show
        whole.views.anchors.data[0, 0] = value
        return found

    patch.setattr(steps_of, "shared_loss", loss)


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
    spoil(monkeypatch, kind, {3}, what, torch.inf if what == "embedding" else torch.nan)
    said = {"embedding": "an embedding", "input": "the loss"}.get(what, f"the {what}")
    output = Path(settings["output"])
    with pytest.raises(Diverged) as caught:
        train(**{**settings, "progress": True})
    message = str(caught.value)
    assert message.startswith(
        f"training diverged: {said} is not finite at step 3; use a lower learning_rate ("
    )
    assert message.endswith(" or resume=True with on_nan='skip'")
    assert ("clip=1" in message) == (kind == "images")
    told = capsys.readouterr().err
    for line in ("loss: ", "anchors: ", "gradient dissipation: ", "weight: ", "ratio: "):
        assert f"  {line}" in told or f" {line}" in told
    assert "weights: " in told
    assert ("gradients: " in told) == (what == "gradient")
    checkpoint = read_checkpoint(output / "checkpoints" / "last.ckpt")
    assert checkpoint["global_step"] == 3
    assert all(torch.isfinite(x).all() for x in checkpoint["state_dict"].values())


@pytest.mark.parametrize("what", ["loss", "embedding", "gradient", "input"])
@pytest.mark.slow
def test_a_step_that_is_left_out_leaves_no_trace(
    kind: str, settings: dict[str, Any], train: Fit, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters, buffers and the optimiser's states are what they were; the next batch comes."""
    spoil(monkeypatch, kind, {2}, what)
    if kind == "images":
        settings |= {"method": "mocov2"}  # it has running statistics, a moving average and a queue
    output = train(**{**settings, "checkpoint_every": 100, "keep_every": 1}, on_nan="skip").output
    before, after, next_one = (
        read_checkpoint(output / "checkpoints" / f"step-{step}.ckpt") for step in (2, 3, 4)
    )
    assert (before["global_step"], after["global_step"]) == (2, 3)
    assert before["state_dict"].keys() == after["state_dict"].keys()
    assert same(before["state_dict"], after["state_dict"])
    states = [found["optimizer_states"][0]["state"] for found in (before, after, next_one)]
    assert same(states[0], states[1])
    assert not same(states[1], states[2])
    assert all(torch.isfinite(x).all() for x in next_one["state_dict"].values())
    logged = {row["step"]: row for row in rows(output)}
    assert logged["2"]["skipped"] == "1"
    assert logged["2"]["loss"] == ""
    assert [logged[step]["skipped"] for step in ("0", "4", "5")] == ["0", "1", "1"]
    assert json.loads((output / "result.json").read_text())["metrics"]["skipped"] == 1


@pytest.mark.parametrize(
    "method",
    [m if m == "mocov2" else pytest.param(m, marks=pytest.mark.slow) for m in METHODS],
)
def test_every_method_leaves_a_step_out(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, "images", {1}, "input")
    settings = {**IMAGES, "method": method, "output": str(tmp_path / "run"), "max_steps": 3}
    if method == "dino":
        settings["method_settings"] = {"frozen_epochs": 0}
    output = fit_images(**settings, on_nan="skip", keep_every=1).output
    states = [
        read_checkpoint(output / "checkpoints" / f"step-{step}.ckpt")["state_dict"]
        for step in (1, 2, 3)
    ]
    assert same(states[0], states[1])
    assert not same(states[1], states[2])
    assert all(torch.isfinite(x).all() for x in states[2].values())


@pytest.mark.slow
def test_a_run_that_leaves_steps_out_goes_on_exactly(
    kind: str, settings: dict[str, Any], train: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, kind, {1, 3}, "input")
    whole = train(**{**settings, "output": settings["output"] + "-whole"}, on_nan="skip").output
    assert read_checkpoint(whole / "checkpoints" / "last.ckpt")["global_step"] == 5
    begun = MODULES[kind].on_train_batch_start

    def dies(self: Any, batch: Any, batch_idx: int) -> None:
        begun(self, batch, batch_idx)
        if self.global_step == 4:
            raise RuntimeError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(MODULES[kind], "on_train_batch_start", dies)
        with pytest.raises(RuntimeError, match="power"):
            train(**settings, on_nan="skip")
    outcome = train(**settings, on_nan="skip", resume=True)
    assert outcome.result.metrics["skipped"] == 2
    assert rows(outcome.output) == rows(whole)
    last = [read_checkpoint(run / "checkpoints" / "last.ckpt") for run in (outcome.output, whole)]
    assert same(last[0]["state_dict"], last[1]["state_dict"])
    assert same(last[0]["optimizer_states"], last[1]["optimizer_states"])


@pytest.mark.slow
def test_what_stopped_a_run_may_be_left_out_when_it_goes_on(
    kind: str, settings: dict[str, Any], train: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, kind, {3}, "loss")
    with pytest.raises(Diverged):
        train(**settings)
    with pytest.raises(Diverged):
        train(**settings, resume=True)
    outcome = train(**settings, resume=True, on_nan="skip")
    assert (outcome.exit_code, outcome.result.metrics["skipped"]) == (0, 1)


@pytest.mark.slow
def test_ten_steps_in_a_row_end_the_run(
    kind: str,
    settings: dict[str, Any],
    train: Fit,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings |= {"max_steps": 16, "progress": True, "checkpoint_every": 4}
    spoil(monkeypatch, kind, {0, 2, *range(4, 13), 14}, "loss")
    assert train(**settings, on_nan="skip").result.metrics["skipped"] == 12
    told = capsys.readouterr().err
    assert "step 12: the loss is not finite; left out" in told
    assert "step 13: " not in told
    settings["output"] += "-more"
    spoil(monkeypatch, kind, {13}, "loss")
    with pytest.raises(Diverged, match=r"not finite at step 13, as something was in the 9 steps"):
        train(**settings, on_nan="skip")
    checkpoint = read_checkpoint(Path(settings["output"]) / "checkpoints" / "last.ckpt")
    assert checkpoint["global_step"] == 12
    guard = next(v for k, v in checkpoint["callbacks"].items() if k.startswith("NonFiniteGuard"))
    assert guard == {"skipped": 10, "in_a_row": 8}
    # the count goes on where the run does
    with pytest.raises(Diverged, match="not finite at step 13"):
        train(**settings, on_nan="skip", resume=True)


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


def test_weights_that_are_not_finite_are_not_saved(
    kind: str, settings: dict[str, Any], train: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update of a finite gradient may break them; the step after it would see."""
    module = MODULES[kind]
    step = module.optimizer_step

    def breaks(self: Any, *given: Any, **named: Any) -> None:
        step(self, *given, **named)
        if self.global_step in broken:
            next(self.encoder.parameters()).data.flatten()[0] = torch.inf

    monkeypatch.setattr(module, "optimizer_step", breaks)
    broken = {2}
    with pytest.raises(Diverged, match=r"after 3 steps the weights are not finite \(encoder\."):
        train(**settings)
    found = read_checkpoint(Path(settings["output"]) / "checkpoints" / "last.ckpt")
    assert found["global_step"] == 2
    broken = {5}  # the last update, which no checkpoint follows
    settings["output"] += "-last"
    with pytest.raises(Diverged, match="after 6 steps the weights are not finite"):
        train(**settings)
    assert not (Path(settings["output"]) / "result.json").exists()
    assert not (Path(settings["output"]) / "model").exists()


# what needs no run


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.learning_rate, self.measured, self.gradient_norm = 0.1, {}, None
        self.objective = SimpleNamespace(hyperparameters=dict, has_terms=False)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_one_number_of_a_batch_is_enough(value: float, dtype: torch.dtype) -> None:
    for place in ("anchors", "positives", "negatives"):
        guard, views = NonFiniteGuard(), Views(*torch.ones(3, 4, 5).to(dtype))
        assert guard.forward_is_finite(Tiny(), 0, torch.tensor(1.0), [views, views])
        broken = getattr(views, place).clone()
        broken[2, 3] = value
        others = dataclasses.replace(views, **{place: broken})
        with pytest.raises(Diverged, match="an embedding is not finite at step 7; use a lower"):
            guard.forward_is_finite(Tiny(), 7, torch.tensor(1.0), [views, others])
    with pytest.raises(Diverged, match="the loss is not finite"):
        guard.forward_is_finite(Tiny(), 7, torch.tensor(value, dtype=dtype), [views])


def test_overflow_of_a_scaled_gradient_is_the_scalers_business() -> None:
    """Until it has scaled down to nothing: then the gradient itself is not finite."""
    guard, norm = NonFiniteGuard(), torch.tensor(torch.nan)
    for scale in (65536.0, 2.0):
        guard.check_gradient(Tiny(), 5, norm, scale)
        assert not guard.skipping
    for scale in (1.0, 0.5, None):
        with pytest.raises(Diverged, match="the gradient is not finite at step 5"):
            NonFiniteGuard().check_gradient(Tiny(), 5, norm, scale)
    with pytest.raises(Diverged, match="the loss is not finite"):
        guard.forward_is_finite(Tiny(), 5, norm, [])


def test_a_skipped_step_has_a_zero_gradient_for_everybody_and_then_none() -> None:
    module = Tiny()
    module.weight.data[0] = torch.inf
    guard = NonFiniteGuard(TrainSettings(files=["x"], output="y", on_nan="skip", progress=False))
    assert not guard.forward_is_finite(module, 0, torch.tensor(torch.nan), [])
    guard.zero_loss(module).backward()
    assert module.weight.grad is not None
    assert torch.equal(module.weight.grad, torch.zeros(3))
    guard.check_gradient(module, 0, torch.tensor(0.0))
    assert module.weight.grad is None


def test_broken_weights_are_named() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    check_finite_weights(module, 3)
    module[1].bias.data[1] = torch.nan
    with pytest.raises(Diverged, match=r"after 3 steps the weights are not finite \(1\.bias\)"):
        check_finite_weights(module, 3)


def test_it_is_a_setting_that_may_change() -> None:
    for kind in (TrainSettings, ImageSettings):
        assert "on_nan" in kind.free
    with refused_setting("on_nan", value="go"):
        TrainSettings.read({"files": "x", "output": "y", "on-nan": "go"})


# several processes

NAN_ON_RANK_1 = """
import os
import torch
from isotrope.objectives.infonce import InfoNCE
from isotrope.paradigm.objective import Paper

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
    """One of them sees a NaN: all leave the step out, or all end."""
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
    left_out = fit(**settings, output=str(tmp_path / "a"), on_nan="skip")
    assert (left_out.result.metrics["skipped"], left_out.result.metrics["steps"]) == (1, 4)
    with pytest.raises(Diverged, match="the loss is not finite at step 1; use"):
        fit(**settings, output=str(tmp_path / "b"))
