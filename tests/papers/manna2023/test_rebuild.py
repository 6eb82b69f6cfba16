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
from papers.manna2023.rebuild import NO_HEAD, Rebuilt, rebuild
from tests.image_run import write_pictures
from tests.training.conftest import sentences
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


def text(folder: Path, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "corpus.txt").write_text("\n".join(sentences(60)), encoding="utf-8")
    quick = {
        "encoder": "scratch",
        "batch_size": 12,
        "max_steps": 5,
        "checkpoint_every": STEP,
        "log_every": 1,
        "progress": False,
    }
    given = {**quick, **settings}
    isotrope.fit(folder / "corpus.txt", output=folder / "run", **given)
    return folder / "run"


def hessian(found: Rebuilt, **options: Any) -> Hessian:
    return parameter_hessian(found.objective, found.terms, found.module, **options)


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
    found = rebuild(run)
    assert (found.step, found.about["head"]) == (STEP, "as trained")
    curved = hessian(found)
    loss, norm = logged(run, STEP)
    assert curved.loss == pytest.approx(loss, rel=1e-5)
    assert float(curved.gradient.norm()) == pytest.approx(norm, rel=1e-4)
    assert curved.size == sum(p.numel() for p in found.module.parameters() if p.requires_grad)
    assert len(found.decay) == len(curved.parameters)


@pytest.mark.parametrize(
    "settings", [{"objective": "ntxent"}, {"head": "none", "holdout": 0.2, "micro_batch": 4}]
)
@pytest.mark.slow
def test_text_as_it_was_trained(tmp_path: Path, settings: dict) -> None:
    """The data are read again, masks drawn again: those of the step."""
    run = text(tmp_path, **settings)
    assert not (run / "tokens").exists()
    found = rebuild(run)
    loss, norm = logged(run, STEP)
    curved = hessian(found)
    assert curved.loss == pytest.approx(loss, rel=1e-5)
    assert float(curved.gradient.norm()) == pytest.approx(norm, rel=1e-4)
    assert not (run / "tokens").exists()
    assert found.learning_rate == pytest.approx(3e-5 * (1 - STEP / 5))
    assert found.peak == 3e-5


def test_the_batches_that_come_next(tmp_path: Path) -> None:
    run = images(tmp_path, checkpoint_every=2, max_steps=5)
    newest = rebuild(run)
    older = rebuild(run, file=run / "checkpoints" / "previous.ckpt", batches=[2, 0])
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
    assert names == {"last.ckpt", *(f"step-{i}.ckpt" for i in (0, 2, 4, 5))}
    assert logged(run, 4) == logged(plain, 4)
    (run / "checkpoints" / "step-of-mine.ckpt").touch()
    found = rebuild(run)
    assert (found.step, found.about["head"]) == (5, "as trained")
    saved = ImageEncoder.load(run)
    ours = found.module.encoder.state_dict()
    assert all(torch.equal(ours[k], v) for k, v in saved.state_dict().items())
    first = rebuild(run, file=run / "checkpoints" / "step-0.ckpt")
    assert hessian(first).loss == pytest.approx(logged(run, 0)[0], rel=1e-5)


def test_running_statistics_and_smaller_batches(tmp_path: Path) -> None:
    run = images(tmp_path)
    batch, running = (rebuild(run, batch_norm=b, batch_size=6) for b in ("batch", "running"))
    assert batch.terms[0]()[0].anchors.shape == (6, 4)
    assert (batch.about["batch_norm"], running.about["batch_norm"]) == (
        "batch statistics",
        "running statistics",
    )
    assert hessian(batch).loss != pytest.approx(hessian(running).loss, rel=1e-3)


def test_without_a_checkpoint_there_is_no_head(tmp_path: Path) -> None:
    """The saved encoder alone: the objective sees its embeddings."""
    run = images(tmp_path / "a", checkpoint_every=100)
    found = rebuild(run)
    assert found.about["head"] == NO_HEAD
    assert found.step == 5
    encoder = isotrope.load(run)
    (views,) = found.terms[0]()
    assert views.anchors.shape == (12, encoder.dimension)
    assert found.module.state_dict().keys() == encoder.state_dict().keys()
    for name, value in encoder.state_dict().items():
        # making the views has moved the running statistics
        same = torch.equal(value, found.module.state_dict()[name])
        assert same or name.endswith(("running_mean", "running_var", "num_batches_tracked")), name
    assert hessian(found).size == sum(p.numel() for p in encoder.parameters())
    words = rebuild(text(tmp_path / "b", checkpoint_every=100))
    assert words.about["head"] == NO_HEAD
    assert torch.isfinite(hessian(words).gradient).all()
    with pytest.raises(InputError, match="without its head there are no logits"):
        rebuild(images(tmp_path / "c", method="dino", checkpoint_every=100))


def test_weight_decay_is_that_of_each_parameter(tmp_path: Path) -> None:
    run = images(tmp_path, weight_decay=0.25, optimizer="lars", learning_rate=0.1)
    found = rebuild(run)
    wanted = [p for p in found.module.parameters() if p.requires_grad]
    assert found.decay == [0.25 if p.ndim > 1 else 0.0 for p in wanted]


def test_a_run_that_was_stopped(tmp_path: Path) -> None:
    """Without a result; of text the tokens are still there, and are used."""
    run = text(tmp_path)
    (run / "result.json").unlink()
    assert rebuild(run).step == STEP
    for file in run.glob("checkpoints/*"):
        file.unlink()
    with pytest.raises(InputError, match="neither a checkpoint nor a saved model"):
        rebuild(run)


def test_what_cannot_be_rebuilt(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no run folder"):
        rebuild(tmp_path)
    run, other = images(tmp_path / "a"), images(tmp_path / "b", width=2)
    with pytest.raises(InputError, match="the checkpoint is not of"):
        rebuild(run, file=other / "checkpoints" / "last.ckpt")
    with pytest.raises(InputError, match="no checkpoint that can be read \\(No such file"):
        rebuild(run, file=run / "nothing.ckpt")
    torch.save({"state_dict": {}}, tmp_path / "half.ckpt")
    with pytest.raises(InputError, match="no checkpoint that can be read \\(it holds no run\\)"):
        rebuild(run, file=tmp_path / "half.ckpt")
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["data"] = str(tmp_path / "gone.npz")
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(InputError, match=r"gone\.npz"):
        rebuild(run)
