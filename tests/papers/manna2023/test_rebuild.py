"""A run rebuilt: its loss and gradient are those of the step that came next, to rounding."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import isotrope
from isotrope.core.errors import InputError
from isotrope.diagnostics.curvature import Hessian, parameter_hessian
from isotrope.encoders.image import ImageEncoder
from isotrope.training.checkpoints import newest
from papers.manna2023.rebuild import Rebuilt, rebuild
from tests.image_run import write_pictures
from tests.training.tiny_images import SMALL

STEP = 3


def images(folder: Path, **settings: Any) -> Path:
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
    }
    isotrope.fit_images(pictures, output=folder / "run", **{**quick, **settings})
    return folder / "run"


def hessian(found: Rebuilt, **options: Any) -> Hessian:
    return parameter_hessian(found.objective, found.terms, found.module, **options)


def last(run: Path) -> Path:
    return newest(run / "checkpoints", print)


def logged(run: Path, step: int) -> tuple[float, float]:
    with (run / "metrics.csv").open() as lines:
        (row,) = (row for row in csv.DictReader(lines) if row["step"] == str(step))
    return float(row["loss"]), float(row["gradient_norm"])


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("simclr", {"objective": "miov3"}),
        ("mocov2", {}),
        ("byol", {}),
        ("dino", {"clip": None}),
    ],
)
@pytest.mark.slow
def test_images_as_they_were_trained(tmp_path: Path, method: str, settings: dict) -> None:
    """Heads, batch statistics, queue and moving averages included: what was logged says so."""
    run = images(tmp_path, method=method, **settings)
    found = rebuild(run, last(run))
    assert (found.step, found.about["head"]) == (STEP, "as trained")
    curved = hessian(found)
    loss, norm = logged(run, STEP)
    assert curved.loss == pytest.approx(loss, rel=1e-5)
    assert float(curved.gradient.norm()) == pytest.approx(norm, rel=1e-4)
    assert curved.size == sum(p.numel() for p in found.module.parameters() if p.requires_grad)
    assert len(found.decay) == len(curved.parameters)


def test_the_batches_that_come_next(tmp_path: Path) -> None:
    run = images(tmp_path, checkpoint_every=2, max_steps=5)
    newest = rebuild(run, last(run))
    older = rebuild(run, run / "checkpoints" / "checkpoint-2", batches=[2, 0])
    assert (newest.step, older.step) == (4, 2)
    assert hessian(newest).loss == pytest.approx(logged(run, 4)[0], rel=1e-5)
    apart = [parameter_hessian(older.objective, t, older.module).loss for t in older.terms]
    assert apart[1] == pytest.approx(logged(run, 2)[0], rel=1e-5)
    assert apart[0] != pytest.approx(apart[1], rel=1e-3)


def test_checkpoints_that_stay(tmp_path: Path) -> None:
    """Step 0, every second one and the last, which is the newest; training is not touched."""
    plain = images(tmp_path / "a", max_steps=5)
    run = images(tmp_path / "b", checkpoint_every=3, keep_every=2, max_steps=5)
    names = {path.name for path in (run / "checkpoints").iterdir()}
    assert names == {f"checkpoint-{i}" for i in (0, 2, 4, 5)}
    assert logged(run, 4) == logged(plain, 4)
    found = rebuild(run, run / "checkpoints" / "checkpoint-5")
    assert (found.step, found.about["head"]) == (5, "as trained")
    saved = ImageEncoder.load(run)
    ours = found.module.encoder.state_dict()
    assert all(torch.equal(ours[k], v) for k, v in saved.state_dict().items())
    first = rebuild(run, run / "checkpoints" / "checkpoint-0")
    assert hessian(first).loss == pytest.approx(logged(run, 0)[0], rel=1e-5)


def test_running_statistics_and_smaller_batches(tmp_path: Path) -> None:
    run = images(tmp_path)
    batch, running = (
        rebuild(run, last(run), batch_norm=b, batch_size=6) for b in ("batch", "running")
    )
    assert batch.terms[0]()[0].anchors.shape == (6, 4)
    assert (batch.about["batch_norm"], running.about["batch_norm"]) == (
        "batch statistics",
        "running statistics",
    )
    assert hessian(batch).loss != pytest.approx(hessian(running).loss, rel=1e-3)


def test_weight_decay_is_that_of_each_parameter(tmp_path: Path) -> None:
    run = images(tmp_path, weight_decay=0.25, optimizer="lars", learning_rate=0.1)
    found = rebuild(run, last(run))
    wanted = [p for p in found.module.parameters() if p.requires_grad]
    assert found.decay == [0.25 if p.ndim > 1 else 0.0 for p in wanted]


def test_what_cannot_be_rebuilt(tmp_path: Path) -> None:
    run, other = images(tmp_path / "a"), images(tmp_path / "b", width=2)
    with pytest.raises(InputError, match="the checkpoint is not of"):
        rebuild(run, last(other))
    with pytest.raises(InputError, match="no checkpoint that can be read"):
        rebuild(run, run / "nothing")
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["data"] = str(tmp_path / "gone.npz")
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(InputError, match=r"gone\.npz"):
        rebuild(run, last(run))
