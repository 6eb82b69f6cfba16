"""A run restored: its loss and gradient are those of the step that came next, to rounding."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

import isotrope
from isotrope.diagnostics import parameter_hessian
from isotrope.diagnostics.curvature import Hessian
from isotrope.encoders import ImageEncoder
from isotrope.training import ImageSettings
from papers.measurements.spectrum import Question, Restored, restored
from tests.image_run import write_pictures
from tests.training.tiny_images import SMALL

STEP = 3


def images(folder: Path, **settings: Any) -> ImageSettings:
    """A run of five steps with a checkpoint after three."""
    pictures = write_pictures(folder / "pictures.npz", test=False, labels=False)
    method = settings.get("method", "simclr")
    quick = {
        "encoder": "resnet9",
        "width": 4,
        "method_settings": SMALL[method],
        "batch_size": 12,
        "max_steps": 5,
        "checkpoint_every": STEP,
        "log_every": 1,
        "progress": False,
        **settings,
    }
    isotrope.fit_images(pictures, output=folder / "run", **quick)
    return ImageSettings.read({"data": str(pictures), "output": str(folder / "run"), **quick})


def hessian(found: Restored) -> Hessian:
    return parameter_hessian(found.method.objective, found.terms, found.method)


def logged(run: ImageSettings, step: int) -> tuple[float, float]:
    with (Path(run.output) / "metrics.csv").open() as lines:
        (row,) = (row for row in csv.DictReader(lines) if row["step"] == str(step))
    return float(row["loss"]), float(row["gradient_norm"])


@pytest.mark.parametrize(
    ("method", "settings"), [("simclr", {"objective": "miov3"}), ("byol", {}), ("vicreg", {})]
)
@pytest.mark.slow
def test_images_as_they_were_trained(tmp_path: Path, method: str, settings: dict) -> None:
    """Heads, batch statistics and moving averages included: what was logged says so."""
    run = images(tmp_path, method=method, **settings)
    found = restored(run, Question(), STEP)
    assert (found.about["step"], found.about["head"]) == (STEP, "as trained")
    curved = hessian(found)
    loss, norm = logged(run, STEP)
    assert curved.loss == pytest.approx(loss, rel=1e-5)
    assert float(curved.gradient.norm()) == pytest.approx(norm, rel=1e-4)
    assert curved.size == sum(p.numel() for p in found.method.parameters() if p.requires_grad)


def test_the_batches_that_come_next(tmp_path: Path) -> None:
    run = images(tmp_path, checkpoint_every=2, keep_every=2, max_steps=5)
    assert hessian(restored(run, Question(), 4)).loss == pytest.approx(logged(run, 4)[0], rel=1e-5)
    older = restored(run, Question(seeds=[2, 0]), 2)
    apart = [
        parameter_hessian(older.method.objective, term, older.method).loss for term in older.terms
    ]
    assert apart[1] == pytest.approx(logged(run, 2)[0], rel=1e-5)
    assert apart[0] != pytest.approx(apart[1], rel=1e-3)


def test_checkpoints_that_stay(tmp_path: Path) -> None:
    """Step 0, every second one and the last, which is the newest; training is not touched."""
    plain = images(tmp_path / "a", max_steps=5)
    run = images(tmp_path / "b", checkpoint_every=3, keep_every=2, max_steps=5)
    names = {path.name for path in (Path(run.output) / "checkpoints").iterdir()}
    assert names == {f"checkpoint-{i}" for i in (0, 2, 4, 5)}
    assert logged(run, 4) == logged(plain, 4)
    saved = ImageEncoder.load(Path(run.output))
    ours = restored(run, Question(), 5).method.encoder.state_dict()
    assert all(torch.equal(ours[k], v) for k, v in saved.state_dict().items())
    first = restored(run, Question(), 0)
    assert hessian(first).loss == pytest.approx(logged(run, 0)[0], rel=1e-5)


def test_running_statistics_and_smaller_batches(tmp_path: Path) -> None:
    run = images(tmp_path)
    batch, running = (
        restored(run, Question(batch_norm=b, batch_size=6), STEP) for b in ("batch", "running")
    )
    assert batch.terms[0]()[0].anchors.shape == (6, 4)
    assert (batch.about["batch_norm"], running.about["batch_norm"]) == (
        "batch statistics",
        "running statistics",
    )
    assert hessian(batch).loss != pytest.approx(hessian(running).loss, rel=1e-3)
