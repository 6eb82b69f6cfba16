"""The doctor in trainings of someone else's LightningModule."""

import csv
import math
import os
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from isotrope import Doctor
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.diagnostics.metrics import MEASURED
from isotrope.diagnostics.target import diagnose
from tests.two_processes import on_two

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice about loaders


class Theirs(L.LightningModule):
    """A module that knows nothing of this library."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 24)

    def training_step(self, batch: Tensor, batch_idx: int) -> Any:
        noise = 0.3 * torch.randn(batch.shape, generator=torch.Generator().manual_seed(batch_idx))
        anchors, positives = self.encoder(batch), self.encoder(batch + noise)
        a, b = F.normalize(anchors, dim=1), F.normalize(positives, dim=1)
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log("score", batch.mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.25)


def loader() -> DataLoader[Tensor]:
    rows = torch.randn(48, 8, generator=torch.Generator().manual_seed(0))
    return DataLoader(rows, batch_size=8)  # type: ignore[arg-type]


def fit(
    folder: Path, module: L.LightningModule, callback: Doctor | None, **settings: Any
) -> L.Trainer:
    common = {
        "accelerator": "cpu",
        "max_steps": 6,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
        "num_sanity_val_steps": 1,
        "log_every_n_steps": 1,
    }
    ckpt = settings.pop("ckpt_path", None)
    trainer = L.Trainer(
        default_root_dir=folder,
        callbacks=[] if callback is None else [callback],
        **{**common, **settings},
    )
    trainer.fit(module, loader(), loader(), ckpt_path=ckpt)
    return trainer


def test_a_module_of_someone_elses(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Theirs()
    callback = Doctor(path=tmp_path / "rows", every=2, temperature=0.1, dev="score")
    logger = CSVLogger(tmp_path)
    fit(tmp_path, module, callback, logger=logger)
    assert callback.anatomy.settings["batch-size"] == 8  # the loader is made after on_fit_start
    with (tmp_path / "rows" / "metrics.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    looked = [row for row in rows if row["norm"]]
    assert [row["step"] for row in looked] == ["0", "2", "4"]
    for row in looked:
        assert all(row[name] for name in ("loss", *MEASURED))
        assert float(row["misfit"]) < 1e-4
        assert float(row["learning_rate"]) == 0.25
        assert float(row["gradient_norm"]) > 0
    assert [row["step"] for row in rows if row["dev"]] == ["6"]
    with (Path(logger.log_dir) / "metrics.csv").open(newline="") as handle:
        logged = [row for row in csv.DictReader(handle) if row.get("isotrope/uniformity")]
    assert [row["step"] for row in logged] == ["0", "2", "4"]
    assert float(logged[1]["isotrope/uniformity"]) == pytest.approx(
        float(looked[1]["uniformity"]), rel=1e-6
    )


def test_nothing_of_their_training_changes(tmp_path: Path) -> None:
    weights = []
    for callback in (None, Doctor(every=1)):
        torch.manual_seed(0)
        module = Theirs()
        fit(tmp_path, module, callback)
        weights.append(module.encoder.weight.detach().clone())
    assert torch.equal(*weights)


def test_the_gradient_norm_is_of_the_step_that_was_looked_at(tmp_path: Path) -> None:
    """And of all batches that it accumulates; the loss is of the first."""
    torch.manual_seed(0)
    module = Theirs()
    callback = Doctor(every=1)
    before = module.encoder.weight.detach().clone(), module.encoder.bias.detach().clone()
    fit(tmp_path, module, callback, max_steps=1, accumulate_grad_batches=2)
    (row,) = callback.rows
    after = module.encoder.weight.detach(), module.encoder.bias.detach()
    moved = math.sqrt(
        sum(float((a - b).square().sum()) for a, b in zip(before, after, strict=True))
    )
    assert moved == pytest.approx(0.25 * row["gradient_norm"], rel=1e-4)


def test_a_resumed_training_goes_on_with_its_rows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = Doctor(every=1)
    trainer = fit(tmp_path, Theirs(), first, max_steps=3)
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    second = Doctor(path=tmp_path, every=1)
    fit(tmp_path, Theirs(), second, ckpt_path=tmp_path / "three.ckpt")
    rows = Anatomy.load(tmp_path).rows
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row["loss"] for row in second.rows[:3]] == [row["loss"] for row in first.rows]


def test_a_second_training_begins_anew(tmp_path: Path) -> None:
    doctor = Doctor(every=1, say=None)
    fit(tmp_path, Theirs(), doctor, max_steps=6)
    trainer = fit(tmp_path, Theirs(), doctor, max_steps=2)
    assert [row["step"] for row in doctor.rows] == [0, 1]
    trainer.fit_loop.epoch_loop.max_steps = 4  # the same training goes on
    trainer.fit(Theirs(), loader(), loader())
    assert [row["step"] for row in doctor.rows] == [0, 1, 2, 3]


def test_what_breaks_a_training_off_leaves_the_rows(tmp_path: Path) -> None:
    class Breaks(Theirs):
        def training_step(self, batch: Tensor, batch_idx: int) -> Any:
            if batch_idx == 2:
                raise RuntimeError("the power is gone")
            return super().training_step(batch, batch_idx)

    module = Breaks()
    with pytest.raises(RuntimeError, match="power"):
        fit(tmp_path, module, Doctor(path=tmp_path, every=1))
    assert [row["step"] for row in Anatomy.load(tmp_path).rows] == [0, 1]
    (note,) = diagnose(tmp_path).missed
    assert note.endswith(" step 1 of 6")


def test_an_error_outside_of_a_training_reports_nothing(tmp_path: Path) -> None:
    class Breaks(Theirs):
        def test_step(self, batch: Tensor, batch_idx: int) -> None:
            raise RuntimeError("no test today")

    lines: list[str] = []
    module = Breaks()
    trainer = fit(tmp_path, module, Doctor(every=1, say=lines.append))
    before = list(lines)
    with pytest.raises(RuntimeError, match="no test today"):
        trainer.test(module, loader())
    assert lines == before
    trainer.fit_loop.epoch_loop.max_steps = 8
    trainer.fit(module, loader(), loader())
    assert len(lines) > len(before)


def test_the_loss_is_logged_without_the_factors_of_the_trainer(tmp_path: Path) -> None:
    losses: list[float] = []

    class Told(Theirs):
        def training_step(self, batch: Tensor, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            losses.append(float(loss.detach()))
            return loss

    scaler = torch.amp.GradScaler("cpu", growth_interval=2)
    half = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    doctor = Doctor(every=1, say=None)
    fit(tmp_path, Told(), doctor, plugins=[half], accumulate_grad_batches=2)
    assert scaler.get_scale() > 65536
    assert [row["loss"] for row in doctor.rows] == pytest.approx(losses[::2], rel=0.01)
    assert not any("factor" in note for note in doctor.diagnose().notes)


def test_manual_optimisation_is_seen_too(tmp_path: Path) -> None:
    class Manual(Theirs):
        automatic_optimization = False

        def training_step(self, batch: Tensor, batch_idx: int) -> None:
            loss = super().training_step(batch, batch_idx)
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    rows = []
    for module in (Manual, Theirs):
        torch.manual_seed(0)
        doctor = Doctor(every=2)
        fit(tmp_path, module(), doctor)
        rows.append(doctor.rows)
    assert [row["step"] for row in rows[0]] == [0, 2, 4]
    for manual, automatic in zip(*rows, strict=True):
        assert manual["dissipation"] == automatic["dissipation"]
        assert manual["temperature"] == pytest.approx(0.1, rel=1e-3)
        assert manual["learning_rate"] == 0.25


def test_a_batch_that_is_skipped_is_not_looked_at(tmp_path: Path) -> None:
    class Skips(Theirs):
        def training_step(self, batch: Tensor, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) if batch_idx else None

    callback = Doctor(every=1)
    fit(tmp_path, Skips(), callback, max_steps=2)
    assert [row["step"] for row in callback.rows] == [1]


def _rank(rank: int, folder: Path) -> list[float | None]:
    """What torchrun sets in each of two processes; the logger's folder is that of the first."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    numbers |= {"GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": 0}
    os.environ |= {name: str(number) for name, number in numbers.items()}
    torch.manual_seed(0)
    doctor = Doctor(every=1, say=None)
    fit(folder, Theirs(), doctor, max_steps=2, devices=2, strategy="ddp", logger=CSVLogger(folder))
    return [row["step"] for row in doctor.rows]


@pytest.mark.slow
def test_two_processes_train_with_a_logger(tmp_path: Path) -> None:
    assert on_two(_rank, tmp_path, tmp_path) == [[0, 1], [0, 1]]
    (file,) = tmp_path.rglob("isotrope/metrics.csv")
    assert [row["step"] for row in Anatomy.load(file).rows] == [0, 1]


class OfTwo(Theirs):
    """A module that calls backward for two losses of a batch, and for a third without pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        optimizer = self.optimizers()
        self.manual_backward(super().training_step(batch, batch_idx))
        a, b = (F.normalize(self.encoder(x), dim=1) for x in (batch, batch + 0.1))
        self.manual_backward(F.cross_entropy(a @ b.T / 0.2, torch.arange(len(a))))
        self.manual_backward(self.encoder(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()


def test_each_loss_of_a_batch_is_measured(tmp_path: Path) -> None:
    torch.manual_seed(0)
    callback = Doctor(every=2, say=None)
    fit(tmp_path, OfTwo(), callback)
    seen = [(row["step"], round(row["temperature"] or 0, 3)) for row in callback.anatomy.measured]
    assert seen == [(step, tau) for step in (0, 2, 4) for tau in (0.1, 0.2)]
    assert list(callback.losses) == ["OfTwo", "loss 2 of OfTwo"]


def test_a_term_is_observed_beside_the_callback(tmp_path: Path) -> None:
    doctor = Doctor(every=2, say=None)

    class Penalised(Theirs):
        def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
            term = super().training_step(batch, batch_idx)
            doctor.observe(term)
            return term + self.encoder(batch).square().mean()

    fit(tmp_path, Penalised(), doctor, accumulate_grad_batches=2, max_steps=3)
    assert [row["step"] for row in doctor.rows] == [0, 2]
    assert all((row["misfit"] or 0) < 0.02 and row["learning_rate"] for row in doctor.rows)
    assert doctor.anatomy.settings["trainer"] == "lightning"
