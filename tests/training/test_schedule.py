"""Warm-up, schedule, early stopping and gradient checkpointing of a training on text."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import isotrope
from isotrope.core.errors import CannotResume, InputError
from isotrope.diagnostics.target import examine
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.measures.judgement import DevEvaluation
from isotrope.training.fit_text import fit
from isotrope.training.settings import TrainSettings
from isotrope.training.text import summary
from isotrope.training.text_encoder import encoder_of
from tests.refused import refused, refused_setting
from tests.training.interrupted import power_cut

RETRIEVAL = "isotrope.evaluation.dev_score.retrieval_evaluation"


def rows(folder: Path) -> list[dict[str, str]]:
    """Return metrics.csv without the only column that depends on the machine."""
    with (folder / "metrics.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    return [{k: v for k, v in row.items() if k != "samples_per_second"} for row in rows]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


def assert_same_run(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert rows(one) == rows(other)


def rates(folder: Path) -> list[float]:
    return [float(row["learning_rate"]) for row in rows(folder) if row["learning_rate"]]


def expected(scheduler: str) -> list[float]:
    """Six steps, of these two of warm-up."""
    fall = [(step - 2) / 4 for step in range(2, 6)]
    shapes = {
        "constant": [1.0] * 4,
        "linear": [1 - p for p in fall],
        "cosine": [(1 + math.cos(math.pi * p)) / 2 for p in fall],
    }
    return [0.01 * x for x in (0.5, 1.0, *shapes[scheduler])]


@pytest.mark.parametrize("scheduler", ["constant", "linear", "cosine"])
def test_warm_up_and_schedule_are_logged_and_used(quick: dict, scheduler: str) -> None:
    own = {"learning_rate": 0.01, "warmup": 2, "scheduler": scheduler, "log_every": 1}
    outcome = fit(**{**quick, **own})
    assert rates(outcome.output) == pytest.approx(expected(scheduler), rel=1e-9)
    card = (outcome.output / "model" / "README.md").read_text()
    fall = "constant" if scheduler == "constant" else f"{scheduler} decay"
    assert f"| learning rate | 0.01, {fall}, after a warm-up of 2 steps |" in card


def test_another_schedule_gives_other_weights(quick: dict, tmp_path: Path) -> None:
    first = weights(fit(**quick).output)
    second = weights(fit(**{**quick, "output": str(tmp_path / "b")}, scheduler="constant").output)
    assert any(not torch.equal(first[k], second[k]) for k in first)


def test_a_share_of_the_steps_is_rounded_up(quick: dict, tmp_path: Path) -> None:
    whole = fit(**{**quick, "log_every": 1}, warmup=2).output
    share = fit(**{**quick, "log_every": 1, "output": str(tmp_path / "share")}, warmup=0.2).output
    assert_same_run(whole, share)
    card = (share / "model" / "README.md").read_text()
    assert "| learning rate | 3e-05, linear decay, after a warm-up of 20% of the steps |" in card


@pytest.mark.slow
def test_resuming_in_a_schedule_equals_never_stopping(quick: dict, tmp_path: Path) -> None:
    own = {**quick, "log_every": 1, "learning_rate": 0.01, "warmup": 4, "scheduler": "cosine"}
    whole = fit(**own).output
    broken = {**own, "output": str(tmp_path / "broken")}
    with power_cut(3):  # within the warm-up, a step after a checkpoint
        fit(**broken)
    with power_cut(5):
        fit(**broken, resume=True)
    assert_same_run(whole, fit(**broken, resume=True).output)


def test_a_run_goes_on_with_the_schedule_it_began_with(quick: dict) -> None:
    with power_cut(5):
        fit(**quick)
    with refused(
        CannotResume,
        remedy="repeat the command that began the run, or choose another output folder",
    ):
        fit(**quick, scheduler="cosine", resume=True)


def test_a_warm_up_longer_than_the_run_is_refused(quick: dict) -> None:
    with pytest.raises(
        InputError, match="warmup=7 means 7 steps, but the run has only 6, so the rate"
    ):
        fit(**quick, warmup=7)
    assert not Path(quick["output"]).exists()


@pytest.mark.parametrize(
    "values",
    [
        {"warmup": 2.5},
        {"warmup": -1},
        {"scheduler": "step"},
        {"patience": 0, "dev": "auto"},
        {"gradient_checkpointing": 3},
    ],
)
def test_refused(values: dict[str, Any]) -> None:
    with refused_setting(next(iter(values))):
        TrainSettings.read({"files": "a.txt", "output": "run", **values})


# early stopping


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The dev scores to come, each of which is the score of 1,000 queries."""
    scores: list[float] = []

    def score(*_: Any, **__: Any) -> DevEvaluation:
        value = scores.pop(0)
        return DevEvaluation(value, (np.arange(1_000) < 10 * value).astype(float))

    monkeypatch.setattr(RETRIEVAL, score)
    return scores


@pytest.fixture
def patient(quick: dict) -> dict[str, Any]:
    return {**quick, "dev": "auto", "eval_every": 1, "max_steps": 9, "patience": 2, "log_every": 1}


def test_a_run_ends_when_the_score_has_not_risen(
    patient: dict, scored: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    scored += [10, 20, 15, 30, 30, 29, 99]
    outcome = fit(**{**patient, "progress": True})
    assert outcome.exit_code == 0
    assert scored == [99], "step 4 has a score of 30, too: that is not a rise"
    metrics = outcome.result.metrics
    assert (metrics["steps"], metrics["dev_best_step"], metrics["dev_final"]) == (5, 3, 29)
    said = capsys.readouterr().err
    assert (
        "early stopping at step 5: in the last 2 evaluations, no score was above the best 30.00"
        in said
    )
    assert "\n5 steps, " in summary(outcome)
    # as after any last step: the checkpoint before it is the newest one, and the run is done
    assert not (outcome.output / "tokens").exists()
    assert fit(**patient, resume=True).result == outcome.result
    assert examine(outcome.output) is not None


def test_the_original_model_stays_until_the_last_score(patient: dict, scored: list[float]) -> None:
    """Scores within noise of the start, and then a fall: the files are those of the result."""
    scored += [50, 49.9, 10]
    given = {**patient, "prefer": "trained", "max_steps": 2, "patience": None}
    outcome = fit(**given)
    model = outcome.result.details["model"]
    assert outcome.result.metrics["dev_best_step"] == 0
    assert isotrope.load(outcome.output).fingerprint() == model["fingerprint"] == model["start"]
    scored += [50, 49.9, 49.8]
    trained = fit(**{**given, "output": f"{outcome.output}-trained"})
    assert trained.result.metrics["dev_best_step"] == 2
    found = isotrope.load(trained.output).fingerprint()
    assert found == trained.result.details["model"]["fingerprint"] != model["start"]


def test_a_score_within_noise_below_the_start_is_no_new_best(
    patient: dict, scored: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    scored += [50, 49.9, 49.8, 99]
    given = {**patient, "prefer": "trained", "keep_every": 2}
    outcome = fit(**{**given, "progress": True})
    assert scored == [99]
    assert outcome.result.metrics["dev_best_step"] == 2  # the last step, which is within noise
    assert "no score was above the best 50.00 at step 0" in capsys.readouterr().err
    (outcome.output / "result.json").unlink()  # killed between the last step and the end
    resumed = fit(**given, resume=True).result
    assert scored == [99]
    assert resumed.details["model"] == outcome.result.details["model"]


def test_the_rates_are_those_of_the_whole_run(patient: dict, scored: list[float]) -> None:
    scored += [30, 20, 20]
    found = rates(fit(**patient).output)
    assert found == pytest.approx([3e-5, 3e-5 * 8 / 9], rel=1e-9)


def test_what_was_interrupted_ends_at_the_same_step(
    patient: dict, scored: list[float], tmp_path: Path
) -> None:
    scores = [10, 20, 15, 30, 30, 29]
    own = {**patient, "checkpoint_every": 1, "keep_every": 4}
    scored += scores
    whole = fit(**own).output
    kept = sorted(path.name for path in (whole / "checkpoints").iterdir())
    assert {"checkpoint-0", "checkpoint-4", "checkpoint-5"} <= {*kept}, "the last step, too"
    broken = {**own, "output": str(tmp_path / "broken")}
    scored += scores
    with power_cut(4):
        fit(**broken)
    assert scored == [29]
    resumed = fit(**broken, resume=True).output
    assert not scored
    assert_same_run(whole, resumed)
    # killed between the last step and the end of the run
    (resumed / "result.json").unlink()
    assert_same_run(whole, fit(**broken, resume=True).output)


def test_every_scored_and_saved_model_is_blended(
    patient: dict, scored: list[float], tmp_path: Path
) -> None:
    """``between``: at the best step, and at the early stop; the steps themselves do not change."""
    runs = []
    for share in (1.0, 0.25):
        scored += [10, 20, 15, 15]
        own = {**patient, "learning_rate": 1e-2, "checkpoint_every": 1, "between": share}
        runs.append(fit(**{**own, "output": str(tmp_path / str(share))}))
    assert [run.result.metrics["dev_best_step"] for run in runs] == [1, 1]
    assert [row["loss"] for row in rows(runs[0].output)] == [
        row["loss"] for row in rows(runs[1].output)
    ]
    start = isotrope.load(patient["encoder"]).state_dict()
    best = [isotrope.load(run.output).state_dict() for run in runs]
    last = [run.encoder.state_dict() for run in runs]
    for whole, part in (best, last):
        for name, value in whole.items():
            torch.testing.assert_close(part[name], start[name].lerp(value, 0.25))
    assert any(not torch.equal(start[name], best[0][name]) for name in start)
    scored += [10, 20, 15, 15]
    broken = {**own, "output": str(tmp_path / "broken")}
    with power_cut(2):
        fit(**broken)
    assert_same_run(runs[1].output, fit(**broken, resume=True).output)


def test_a_score_that_rises_is_no_reason_to_stop(patient: dict, scored: list[float]) -> None:
    scored += [10, 9, 11, 10, 12, 11, 13, 12, 14, 13]
    assert fit(**patient).result.metrics["steps"] == 9


@pytest.mark.nightly
def test_all_processes_end_at_the_same_step(patient: dict) -> None:
    """The first one alone knows the score, which a learning rate so small does not change."""
    own = {"learning_rate": 1e-12, "devices": 2, "device": "cpu"}
    outcome = fit(**{**patient, **own})
    assert outcome.exit_code == 0
    metrics = outcome.result.metrics
    assert (metrics["steps"], metrics["dev_best_step"]) == (2, 0)


# gradient checkpointing


@pytest.mark.parametrize(
    ("micro_batch", "freeze"),
    [
        (None, "none"),
        (6, "embeddings"),
        pytest.param(6, "none", marks=pytest.mark.slow),
        pytest.param(None, "embeddings", marks=pytest.mark.slow),
    ],
)
def test_gradient_checkpointing_changes_no_number(
    quick: dict, tmp_path: Path, micro_batch: int | None, freeze: str
) -> None:
    """Dropout on: what is computed again has the same masks."""
    own = {**quick, "micro_batch": micro_batch, "freeze": freeze, "max_steps": 3}
    whole = fit(**own).output
    less = fit(**{**own, "output": str(tmp_path / "less")}, gradient_checkpointing=True).output
    assert_same_run(whole, less)


def test_gradient_checkpointing_and_lora(quick: dict, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    own = {**quick, "lora": 2, "max_steps": 3}
    whole = fit(**own).output
    less = fit(**{**own, "output": str(tmp_path / "less")}, gradient_checkpointing=True).output
    assert_same_run(whole, less)


def test_it_keeps_less_of_a_forward_pass(encoder_folder: str) -> None:
    kept = []
    for on in (False, True):
        settings = TrainSettings.read(
            {
                "files": "a.txt",
                "output": "run",
                "encoder": encoder_folder,
                "gradient_checkpointing": on,
            }
        )
        encoder = encoder_of(settings).train()
        ids = torch.randint(5, 50, (64, 32))
        sizes: dict[int, int] = {}

        def pack(x: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            sizes[x.data_ptr()] = x.numel()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            graph = encoder(ids, torch.ones_like(ids))
        kept.append(sum(sizes.values()))
        del graph
    assert kept[1] < kept[0] / 2


def test_an_architecture_that_cannot_is_refused(
    encoder_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = SentenceEncoder.load(encoder_folder, device="cpu")
    monkeypatch.setattr(type(encoder.model[0].model), "supports_gradient_checkpointing", False)
    with refused_setting("gradient_checkpointing"):
        encoder.checkpoint_activations()
