"""The doctor in trainings by transformers' own trainer, with models of somebody's own."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("accelerate")
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

from isotrope import Doctor, diagnose
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.paradigm import graph_reading

N, WIDTH = 8, 24


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Retriever(nn.Module):
    """A query and its own passages, which stand together: the positive, then negatives."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def forward(self, query: Tensor, passages: Tensor) -> dict[str, Tensor]:
        q, p = self.encoder(query), self.encoder(passages.flatten(0, 1))
        scores = F.normalize(q, dim=1) @ F.normalize(p, dim=1).T / 0.05
        own = torch.arange(len(q)) * passages.shape[1]
        return {"loss": F.cross_entropy(scores, own), "scores": scores}


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __init__(self, passages: int) -> None:
        random = torch.Generator().manual_seed(0)
        self.query = torch.randn(64, 12, generator=random)
        noise = torch.randn(64, passages, 12, generator=random)
        self.passages = noise
        self.passages[:, 0] = self.query + 1.5 * noise[:, 0]

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"query": self.query[index], "passages": self.passages[index]}


def trained(
    folder: Path,
    doctor: Doctor | None,
    *,
    passages: int = 3,
    model: nn.Module | None = None,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    **settings: Any,
) -> Tensor:
    torch.manual_seed(0)
    model = model or Retriever()
    own = None if optimizer is None else optimizer(model.parameters())
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=N,
        max_steps=4,
        learning_rate=1e-3,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        logging_steps=2,
        disable_tqdm=True,
        seed=1,
        **settings,
    )
    theirs = Trainer(
        model=model,
        args=arguments,
        train_dataset=Rows(passages),
        optimizers=(own, None),  # type: ignore[arg-type]
    )
    if doctor is not None:
        theirs.add_callback(doctor)  # type: ignore[arg-type]
    theirs.train()
    return next(model.parameters()).detach().clone()


@pytest.mark.parametrize("passages", [1, 3])
@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 2}], ids=str)
def test_the_pairs_of_the_loss_are_seen_wherever_it_is_computed(
    tmp_path: Path, passages: int, settings: dict[str, Any]
) -> None:
    said: list[str] = []
    doctor = Doctor(every=1, say=said.append)
    weights = trained(tmp_path, doctor, passages=passages, **settings)
    assert torch.equal(weights, trained(tmp_path, None, passages=passages, **settings))
    assert not doctor.off
    assert [row["step"] for row in doctor.rows] == [0, 1, 2, 3]
    for row in doctor.rows:
        assert row["negatives"] == N * passages - 1
        assert row["temperature"] == pytest.approx(0.05, rel=0.01)
        assert row["ratio"] == pytest.approx(1, abs=0.02)
        assert 0 < (row["dissipation"] or 0) <= 1
        assert row["loss"] is not None
    assert said[0].startswith("isotrope: Retriever is a softmax over the batch, temperature 0.05")
    assert (tmp_path / "isotrope" / "diagnosis.json").is_file()


@pytest.mark.parametrize("scale", [None, 1000.0, 65536.0])
def test_the_loss_is_logged_without_the_factors_of_the_trainer(
    tmp_path: Path, scale: float | None
) -> None:
    """Of 8 batches in an epoch, the third step adds up only two."""
    losses: list[float] = []

    class Told(Retriever):
        def forward(self, query: Tensor, passages: Tensor) -> dict[str, Tensor]:
            found = super().forward(query, passages)
            losses.append(float(found["loss"].detach()))
            return found

    settings: dict[str, Any] = {"per_device_train_batch_size": N, "gradient_accumulation_steps": 3}
    settings |= {"use_cpu": True, "report_to": "none", "save_strategy": "no", "max_steps": 5}
    arguments = TrainingArguments(str(tmp_path), **settings)
    theirs = Trainer(model=Told(), args=arguments, train_dataset=Rows(1))
    if scale is not None:  # as on a GPU with fp16=True
        theirs.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    doctor = Doctor(every=1, say=None)
    theirs.add_callback(doctor)  # type: ignore[arg-type]
    theirs.train()
    firsts = [losses[i] for i in (0, 3, 6, 8, 11)]
    assert [row["loss"] for row in doctor.rows] == pytest.approx(firsts, rel=1e-3)
    assert not any("factor" in note for note in doctor.diagnose().notes)


def test_a_step_that_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    before = torch.autograd.backward

    class Broken(Retriever):
        def forward(self, query: Tensor, passages: Tensor) -> dict[str, Tensor]:
            super().forward(query, passages)
            raise ArithmeticError("of their own")

    theirs = Trainer(
        model=Broken(),
        args=TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", max_steps=1),
        train_dataset=Rows(1),
    )
    theirs.add_callback(Doctor(say=None))  # type: ignore[arg-type]
    with pytest.raises(ArithmeticError, match="of their own"):
        theirs.train()
    assert torch.autograd.backward is before


def test_the_users_own_step_is_left_in_place(tmp_path: Path) -> None:
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", max_steps=1)
    theirs = Trainer(model=Retriever(), args=arguments, train_dataset=Rows(1))
    theirs.add_callback(Doctor(say=None))  # type: ignore[arg-type]
    theirs.train()
    assert "training_step" not in vars(theirs)
    inherited = theirs.training_step
    own = theirs.training_step = lambda *given, **named: inherited(*given, **named)
    theirs.train()
    assert theirs.training_step is own


def test_a_reading_that_fails_is_said_once_and_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such node")

    for name in ("_keep", "_read", "_listen"):
        caplog.clear()
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, logger="isotrope"):
            patch.setattr(graph_reading.GraphReading, name, broken)
            doctor = Doctor(every=1, say=None)
            weights = trained(tmp_path, doctor)
        assert doctor.off
        (said,) = [r.getMessage() for r in caplog.records if r.name == "isotrope"]
        assert "no such node" in said
        assert torch.equal(weights, trained(tmp_path, None))


def test_the_batch_size_is_the_one_that_the_trainer_found(tmp_path: Path) -> None:
    class Small(Retriever):
        def forward(self, query: Tensor, passages: Tensor) -> dict[str, Tensor]:
            if len(query) > N:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
            return super().forward(query, passages)

    doctor = Doctor(every=1, say=None)
    quiet: dict[str, Any] = {"use_cpu": True, "save_strategy": "no", "report_to": "none"}
    arguments = TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=2 * N,
        auto_find_batch_size=True,
        max_steps=2,
        **quiet,
    )
    trainer = Trainer(Small(), arguments, train_dataset=Rows(3), callbacks=[doctor])
    trainer.train()
    assert trainer._train_batch_size <= N
    assert doctor.anatomy.settings["batch-size"] == trainer._train_batch_size


class Penalised(Retriever):
    """A contrastive term beside a penalty on the norms, which compares no pairs."""

    def __init__(self, doctor: Doctor, *, observes: bool) -> None:
        super().__init__()
        self.doctor, self.observes = doctor, observes

    def forward(self, query: Tensor, passages: Tensor) -> dict[str, Tensor]:
        q, p = self.encoder(query), self.encoder(passages[:, 0])
        scores = F.normalize(q, dim=1) @ F.normalize(p, dim=1).T / 0.05
        term = F.cross_entropy(scores, torch.arange(len(q)))
        if self.observes:
            self.doctor.observe(term)
        return {"loss": term + q.square().mean()}


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_term_is_observed_beside_the_callback(tmp_path: Path, accumulated: int) -> None:
    """The step is that of the trainer, and the trainer's loss is not measured."""
    for observes in (False, True):
        doctor = Doctor(every=1, say=None)
        model = Penalised(doctor, observes=observes)
        trained(tmp_path, doctor, model=model, gradient_accumulation_steps=accumulated)
        assert not doctor.off
        assert [row["step"] for row in doctor.rows] == [0, 1, 2, 3]
        assert all(row["learning_rate"] and row["epoch"] is not None for row in doctor.rows)
        assert all(((row["misfit"] or 0) < 0.02) == observes for row in doctor.rows)
        assert ("not-examined" in doctor.diagnose().verdict) != observes
    assert doctor.rows[0]["temperature"] == pytest.approx(0.05, rel=0.01)


def test_the_rate_is_that_of_the_users_optimizer(tmp_path: Path) -> None:
    for optimizer, advice in (
        (None, "learning_rate=0.001"),
        (partial(torch.optim.SGD, lr=0.3), "a learning rate of 0.3"),
    ):
        doctor = Doctor(every=1, say=None)
        trained(tmp_path, doctor, optimizer=optimizer, warmup_steps=2)
        case = doctor.anatomy.case()
        assert case.words.rate.format(case.settings["learning-rate"]) == advice


def test_an_optimizer_of_another_model_changes_nothing(tmp_path: Path) -> None:
    doctor, other = Doctor(every=1, say=None), Retriever()
    trained(tmp_path, doctor, optimizer=lambda _: torch.optim.SGD(other.parameters(), lr=0.1))
    assert any(row["learning_rate"] for row in doctor.rows)
    diagnosis = doctor.diagnose()
    assert diagnosis.verdict == ("not-examined",)
    assert "optimizer" in diagnosis.findings[0].change


@pytest.mark.parametrize("measured", [0, 2])
def test_a_doctor_that_stops_saves_until_when_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: int
) -> None:
    trained(tmp_path, Doctor(every=1, say=None))  # an earlier training in this folder
    see = Anatomy.see

    def broken(self: Anatomy, readings: Any, step: int, **named: Any) -> Any:
        if step >= measured:
            raise RuntimeError("out of memory")
        return see(self, readings, step, **named)

    said: list[str] = []
    monkeypatch.setattr(Anatomy, "see", broken)
    doctor = Doctor(every=1, say=said.append)
    trained(tmp_path, doctor)
    assert doctor.off
    until = f"until step {measured - 1} only" if measured else "no step"
    note = f"the Doctor measured {until}: RuntimeError: out of memory"
    assert note in diagnose(tmp_path).notes
    assert any("verdict: " in line for line in said) == bool(measured)


def test_a_log_that_cannot_be_resumed_is_left_as_it_is(tmp_path: Path) -> None:
    quiet: dict[str, Any] = {"use_cpu": True, "report_to": "none", "max_steps": 4, "save_steps": 2}
    arguments = TrainingArguments(str(tmp_path), **quiet)
    first, doctor = (Doctor(every=1, say=None) for _ in range(2))
    Trainer(Retriever(), arguments, train_dataset=Rows(3), callbacks=[first]).train()
    log = tmp_path / "isotrope" / "metrics.csv"
    log.write_text("no log", encoding="utf-8")
    theirs = Trainer(Retriever(), arguments, train_dataset=Rows(3), callbacks=[doctor])
    theirs.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert doctor.off
    assert log.read_text(encoding="utf-8") == "no log"
