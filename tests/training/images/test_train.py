"""Training on images, from settings to run folder: every method, resuming, several processes."""

import csv
import json
import multiprocessing.connection
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import isotrope
from isotrope.cli.main import guarded
from isotrope.core.errors import InputError
from isotrope.core.image_methods import METHODS
from isotrope.diagnostics.metrics import columns
from isotrope.training.checkpoints import step_of
from isotrope.training.images import train
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import fit_images
from isotrope.training.launch import REQUEUE
from tests.image_run import write_pictures
from tests.refused import refused_setting
from tests.training.interrupted import at, checkpoints

STEPS = 4


@pytest.fixture
def quick(tmp_path: Path) -> dict:
    """Settings of a run of a second: a ResNet-9 of four channels on 64 digits."""
    return {
        "data": "digits",
        "limit": 64,
        "encoder": "resnet9",
        "width": 4,
        "batch_size": 16,
        "max_steps": STEPS,
        "knn_every": 0,
        "linear": False,
        "log_every": 2,
        "checkpoint_every": 2,
        "seed": 3,
        "progress": False,
        "output": str(tmp_path / "run"),
    }


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return isotrope.load(folder).state_dict()


def flags(settings: dict) -> list[str]:
    given = [settings["data"]]
    for key, value in settings.items():
        name = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            given.append(name if value else name.replace("--", "--no-", 1))
        elif key != "data":
            given += [name, str(value)]
    return given


AT_ONCE = ("simclr", "mocov3", "byol")  # the others are as different, and take as long


@pytest.mark.parametrize(
    "method",
    [m if m in AT_ONCE else pytest.param(m, marks=pytest.mark.slow) for m in METHODS],
)
@pytest.mark.slow
def test_every_method_trains_resumes_and_is_evaluated(
    method: str,
    quick: dict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """A run that was stopped after two steps ends in the weights of one that was not."""
    if method in ("mocov3", "dino"):
        quick |= {"encoder": "vit-tiny", "width": 24}
    quick["method"] = method
    whole = {**quick, "output": str(tmp_path / "whole")}
    assert guarded(["train-images", *flags(whole)]) == 0
    stop_after(2, monkeypatch)
    assert guarded(["train-images", *flags(quick)]) == 75
    assert not (tmp_path / "run" / "result.json").exists()
    monkeypatch.undo()
    assert guarded(["train-images", *flags(quick), "--resume"]) == 0
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "run")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert [without_speed(row) for row in rows(tmp_path / "run")] == [
        without_speed(row) for row in rows(tmp_path / "whole")
    ]
    capsys.readouterr()
    assert guarded(["evaluate", str(tmp_path / "run"), "--knn", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    logged = float(rows(tmp_path / "run")[-1]["knn"])
    assert 100 * scores["knn"]["top1"] == pytest.approx(logged, abs=1e-3)


def without_speed(row: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in row.items() if k != "images_per_second"}


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the scheduler ask for an end while step ``steps`` is made."""
    at(monkeypatch, steps - 1, lambda: signal.raise_signal(signal.SIGTERM))


def test_the_run_folder_says_what_was_done(quick: dict) -> None:
    quick |= {"cut": 9.0, "method": "byol", "method_settings": {"hidden": 32, "decay": 0.9}}
    outcome = fit_images(**quick)
    config = yaml.safe_load((outcome.output / "config.yaml").read_text())
    assert (config["cut"], config["method.decay"], config["data"]) == (9.0, 0.9, "digits")
    again = ImageSettings.read(config)
    assert again == ImageSettings.read(quick)
    result = outcome.result
    assert result.kind == "train-images"
    assert result.details["cut"] == {"c": 9.0, "what": "weights"}
    assert result.details["method"]["options"]["hidden"] == 32
    assert result.details["data"]["images"] == 64
    assert tuple(rows(outcome.output)[0]) == columns("images")
    assert float(rows(outcome.output)[0]["norm"]) > 0
    card = (outcome.output / "model" / "README.md").read_text()
    assert "weights divided by 9" in card
    assert f"{result.metrics['knn_final']:.2f}" in card


def test_cut_initialization_divides_encoder_and_heads_and_their_copies(quick: dict) -> None:
    """All weights are initial: the embeddings of a network of a few layers start much smaller."""
    quick |= {"method": "byol", "max_steps": 1, "learning_rate": 1e-12, "weight_decay": 0.0}
    plain = fit_images(**{**quick, "output": quick["output"] + "1"})
    cut = fit_images(**{**quick, "cut": 3.0})
    for before, after in zip(plain.encoder.parameters(), cut.encoder.parameters(), strict=True):
        divided = 3.0 if before.ndim > 1 else 1.0
        torch.testing.assert_close(after * divided, before, rtol=1e-5, atol=1e-8)
    norms = [float(rows(outcome.output)[0]["norm"]) for outcome in (plain, cut)]
    assert norms[1] < norms[0] / 2


def test_a_pretrained_encoder_is_not_cut(quick: dict, tmp_path: Path) -> None:
    first = fit_images(**quick)
    second = {**quick, "output": str(tmp_path / "second"), "encoder": str(first.output), "cut": 9.0}
    second |= {"max_steps": 1, "learning_rate": 1e-12, "weight_decay": 0.0}
    del second["width"]
    found = fit_images(**second)
    for before, after in zip(
        isotrope.load(first.output).parameters(), found.encoder.parameters(), strict=True
    ):
        torch.testing.assert_close(before, after)
    with pytest.raises(
        InputError, match=r"width=4 .leave it out: it is only for encoders from scratch"
    ):
        fit_images(**{**second, "width": 4, "output": str(tmp_path / "third")})


@pytest.mark.slow
def test_two_processes_see_what_one_sees(quick: dict, tmp_path: Path) -> None:
    """Batch normalisation included: its statistics are those of the rows of both."""
    quick |= {"log_every": 1}
    one = fit_images(**quick)
    two = fit_images(**{**quick, "output": str(tmp_path / "two"), "devices": 2})
    for row, other in zip(rows(one.output), rows(two.output), strict=True):
        for name in ("loss", "gradient_norm", "norm", "norm_backbone", "alignment", "knn"):
            if row[name]:
                # float32, and batch norms of 16 rows enlarge what rounding makes of it in 4 steps
                assert float(other[name]) == pytest.approx(float(row[name]), rel=2e-3), name
    assert json.loads((two.output / "result.json").read_text())["metrics"]["steps"] == STEPS


def test_micro_batches_give_the_same_gradients(quick: dict, tmp_path: Path) -> None:
    quick |= {"encoder": "vit-tiny", "width": 24, "max_steps": 2, "log_every": 1}
    whole = rows(fit_images(**quick).output)
    pieces = rows(fit_images(**{**quick, "output": str(tmp_path / "p"), "micro_batch": 5}).output)
    for row, other in zip(whole[:2], pieces[:2], strict=True):
        assert float(other["gradient_norm"]) == pytest.approx(float(row["gradient_norm"]), rel=1e-4)
    with pytest.raises(InputError, match=r"gradient caching.* batch normalisation"):
        fit_images(
            **{**quick, "output": str(tmp_path / "r"), "encoder": "resnet9", "micro_batch": 5}
        )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "simclear"}, "unknown method 'simclear'.*simclr"),
        ({"method_settings": {"queue": 4}}, "method simclr has no option 'queue'"),
        ({"objective": "miov4"}, "miov4"),
        ({"augment": "simclear"}, "simclear"),
        ({"encoder": "nowhere/at-all"}, "nowhere/at-all"),
        ({"data": "nowhere"}, "nowhere"),
        ({"batch_size": 1}, "batch_size=1: "),
        ({"image_size": 2}, "image_size=2: "),
        ({"cut": 0}, "cut=0: "),
        ({"micro_batch": 8}, "batch normalisation"),
        ({"precision": "16", "device": "cpu"}, r"precision=16 \(use precision='bf16'"),
        (
            {"optimizer": "lars"},
            "also give learning_rate: the method's default is for the optimiser sgd",
        ),
        ({"warmup_epochs": 50}, "warmup_epochs=50 means .* steps, but the run has"),
        ({"classes": __file__}, "digits: leave out the list of classes"),
    ],
)
def test_what_is_wrong_leaves_nothing_behind(
    quick: dict, changed: dict, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        fit_images(**{**quick, **changed})
    assert not (tmp_path / "run").exists()


def test_a_folder_of_pictures_with_broken_ones(
    quick: dict, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Decoded by two workers; what cannot be read is counted, and the training goes on."""

    random = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    (folder / "cat" / "13.png").write_bytes(b"not a picture")
    cut_short = folder / "dog" / "5.png"
    cut_short.write_bytes(cut_short.read_bytes()[:200])
    quick |= {"data": str(folder), "image_size": 16, "holdout": 0.25, "workers": 2}
    del quick["limit"]
    assert guarded(["train-images", *flags(quick)]) == 0
    printed = capsys.readouterr().out
    assert "images that could not be read and were skipped: 1 (cat/13.png)" in printed
    assert "images that could not be decoded and were replaced by others: 1 (dog/5.png)" in printed
    assert "images/s" in printed
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    data = result["details"]["data"]
    assert (data["images"], data["test"]) == (18, 6)
    assert (data["skipped_files"], data["replaced_files"]) == (["cat/13.png"], ["dog/5.png"])


@pytest.mark.slow
def test_a_scheduler_that_signals_the_workers_too(
    quick: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        workers = multiprocessing.active_children()
        for worker in workers:
            os.kill(worker.pid, signal.SIGTERM)
        assert len(workers) == 2
        ended = multiprocessing.connection.wait([worker.sentinel for worker in workers], 1)
        assert not ended
        signal.raise_signal(signal.SIGTERM)

    at(monkeypatch, 1, stop)
    outcome = fit_images(**{**quick, "workers": 2, "max_steps": 20})
    assert outcome.exit_code == REQUEUE
    assert [step_of(folder) for folder in checkpoints(outcome.output)] == [2]
    monkeypatch.undo()
    assert fit_images(**{**quick, "workers": 2, "max_steps": 20}, resume=True).exit_code == 0


def test_workers_whose_sockets_have_no_room_are_refused(
    quick: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """They would wait for ever."""
    deep = tmp_path / ("d" * 76)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert guarded(["train-images", *flags({**quick, "workers": 1})]) == 2
    error = capsys.readouterr().err
    assert f"{deep} has" in error
    assert "set TMPDIR to a folder whose path has at most 75 bytes, or use --workers 0" in error
    assert not (tmp_path / "run").exists()
    assert guarded(["train-images", *flags({**quick, "workers": 0, "max_steps": 1})]) == 0


def test_pictures_that_all_break_when_decoded_are_one_line(
    quick: dict, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """It is a worker that finds out; its traceback is not the user's."""

    folder = tmp_path / "pictures"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    for number in range(20):
        Image.fromarray(pixels).save(folder / f"{number}.png")
        whole = (folder / f"{number}.png").read_bytes()
        (folder / f"{number}.png").write_bytes(whole[:300])
    quick |= {"data": str(folder), "workers": 1, "image_size": 16}
    del quick["limit"]
    assert guarded(["train-images", *flags(quick)]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "none of 20 pictures can be decoded" in error
    assert len(error.strip().splitlines()) == 1


def test_a_list_of_classes(quick: dict, tmp_path: Path) -> None:
    """The run trains on the named classes, and is scored on them alone."""

    random = np.random.default_rng(0)
    for part in ("train", "test"):
        for name in ("cat", "dog", "fox"):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for number in range(8):
                pixels = random.integers(0, 255, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    (tmp_path / "two.txt").write_text("cat\nfox\n")
    quick |= {"data": str(tmp_path / "pictures"), "classes": str(tmp_path / "two.txt")}
    quick |= {"workers": 0, "limit": None, "batch_size": 8}
    found = fit_images(**quick)
    assert found.result.details["data"]["images"] == 16
    again = isotrope.evaluate(found.output, linear=False)
    assert 100 * again.metrics["knn_top1"] == pytest.approx(found.result.metrics["knn_final"])


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"labels": np.arange(40) % 2},  # none of the test part
        {"labels": np.zeros(40, int), "y_test": np.zeros(40, int)},  # one class
    ],
)
def test_pictures_without_labels_to_score_by(quick: dict, tmp_path: Path, labels: dict) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, x_test=pixels, **labels)
    quick |= {"data": str(tmp_path / "x.npz"), "limit": None, "linear": True, "max_steps": 1}
    outcome = fit_images(**quick)
    assert outcome.result.metrics["knn_final"] is None
    assert (
        "to find out whether training helps, add a test part" in outcome.result.details["verdict"]
    )


def planned(quick: dict, **changed: object) -> dict:
    settings = {**quick, "max_steps": 1, "method": "dino", "width": 24, "encoder": "vit-tiny"}
    return fit_images(**{**settings, **changed}).result.details


def test_what_is_asked_for_replaces_what_the_recipe_has(quick: dict, tmp_path: Path) -> None:
    plan = planned(quick, weight_decay=0.0)["plan"]
    assert (plan["weight_decay"], plan["last_weight_decay"]) == (0, None)
    lars = {"optimizer": "lars", "learning_rate": 0.3, "encoder": "resnet9", "width": 4}
    plan = planned(quick, output=str(tmp_path / "lars"), method="simclr", **lars)["plan"]
    assert (plan["optimizer"], plan["learning_rate"], plan["decay_all"]) == ("lars", 0.3, False)


def test_a_set_smaller_than_a_batch_is_the_batch(quick: dict) -> None:
    """Its learning rate and its throughput, too."""
    outcome = fit_images(**{**quick, "batch_size": 128})
    details, metrics = outcome.result.details, outcome.result.metrics
    assert details["batch_size"] == 64
    assert details["plan"]["learning_rate"] == pytest.approx(0.06 * 64 / 128)
    seconds = STEPS * 64 / metrics["images_per_second"]
    assert metrics["seconds"] == pytest.approx(seconds, abs=6e-4)  # it is rounded to milliseconds
    assert "batch 64" in (outcome.output / "model" / "README.md").read_text()


def test_a_set_smaller_than_the_processes(
    quick: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "world_size", lambda: 3)
    with pytest.raises(InputError, match="a batch has 2 images, too few for 3 processes"):
        fit_images(**{**quick, "limit": 2})
    assert not (tmp_path / "run").exists()


def test_large_pictures_have_crops_that_a_vision_transformer_can_cut(
    quick: dict, tmp_path: Path
) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (4, 300, 260, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels)
    changed = {"data": str(tmp_path / "x.npz"), "limit": None, "encoder": "vit-tiny", "width": 3}
    outcome = fit_images(**{**quick, **changed, "max_steps": 1})
    assert outcome.result.details["data"]["side"] == 256
    assert outcome.encoder.image_size == 224


def test_an_output_called_as_the_digits(
    quick: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert fit_images(**{**quick, "output": "digits/run", "max_steps": 1}).exit_code == 0


def test_a_run_does_not_go_on_with_other_images(
    quick: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_pictures(tmp_path / "data.npz")
    quick |= {"data": str(data), "limit": None}
    stop_after(2, monkeypatch)
    assert fit_images(**quick).exit_code == 75
    monkeypatch.undo()
    half = tmp_path / "run" / "checkpoints" / "checkpoint-9"
    half.mkdir()
    write_pictures(data, seed=1)
    with pytest.raises(InputError, match="restore the data, or start"):
        fit_images(**quick, resume=True)
    write_pictures(data)
    assert fit_images(**quick, resume=True).exit_code == 0
    assert not half.exists()


def test_resuming_a_finished_run_does_nothing(quick: dict) -> None:
    outcome = fit_images(**quick)
    finished = fit_images(**quick, resume=True)
    assert finished.encoder is None
    assert finished.result.metrics == outcome.result.metrics


def test_an_encoder_of_ones_own(quick: dict) -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    own = isotrope.encoders.ImageEncoder.wrap(module, dimension=8, image_size=8)
    before = module[0].weight.detach().clone()
    del quick["width"]
    quick |= {"encoder": own, "cut": 3.0, "knn_images": 40}
    with refused_setting("devices", value=2):
        fit_images(**quick, devices=2)
    found = fit_images(**quick)
    assert found.encoder is own
    change = float((module[0].weight.detach() - before).abs().max())
    assert 0 < change < float(before.abs().max()) / 3, "trained, and not cut"
    assert found.result.metrics["knn_final"] is not None
