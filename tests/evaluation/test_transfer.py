"""The transfer tasks: folds, choice, rounding and order, against the protocol written out."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

import isotrope
from benchmarks.sequential import fit_sequential
from isotrope.core.errors import InputError, MissingExtra
from isotrope.data.text import transfer_sets
from isotrope.data.text.transfer_sets import TASKS, Examples, TransferTask, load_transfer
from isotrope.evaluation.classifier import PROTOTYPING, TrainingSet, fit, predict
from isotrope.evaluation.transfer import transfer_task

from .conftest import Table

SPLITS = {"SST2": ("train", "dev", "test"), "TREC": ("train", "test"), "MRPC": ("train", "test")}
REGS = [1e-5, 1e-4, 1e-3, 1e-2]


def task(name: str, size: int = 60, classes: int = 2, seed: int = 0) -> TransferTask:
    """Texts of one to six words; the classes in blocks, as in the real files."""
    rng = np.random.default_rng(seed)

    def texts(side: str, split: str) -> list[str]:
        return [
            " ".join([f"{name}-{split}-{side}-{i}", *["word"] * rng.integers(6)])
            for i in range(size)
        ]

    splits = {
        split: Examples(
            np.sort(np.arange(size) % classes)[::-1].copy(),
            texts("a", split),
            texts("b", split) if name == "MRPC" else [],
        )
        for split in SPLITS.get(name, ("all",))
    }
    return TransferTask(name, tuple(map(str, range(classes))), splits)


def encoder_of(*tasks: TransferTask, dimension: int = 4) -> Table:
    """Vectors that say something of the class."""
    rng = np.random.default_rng(3)
    table = {}
    for one in tasks:
        for examples in one.splits.values():
            seconds = examples.seconds or [None] * len(examples)
            for label, *pair in zip(examples.labels, examples.texts, seconds, strict=True):
                vector = rng.normal(size=dimension)
                table[pair[0]] = vector + np.eye(dimension)[label]
                table[pair[1]] = vector * (1 - label) + rng.normal(size=dimension)
    return Table(table)


def literally(x: list[np.ndarray], y: list[int], classes: int):
    """Return (train, dev, decay) -> (accuracy on dev, classes of all), one classifier a call."""
    features, labels = torch.tensor(np.array(x)), torch.tensor(y)

    def fitted(train, dev, decay):
        given = TrainingSet(np.array(train), None if dev is None else np.array(dev), (decay,))
        (found,) = fit_sequential(features, labels, classes, [given], PROTOTYPING)
        return found.accuracies[0], predict(found.weights[0], features).numpy()

    return fitted


def skf() -> StratifiedKFold:
    return StratifiedKFold(n_splits=5, shuffle=True, random_state=1111)


def sorted_examples(one: TransferTask, table: Table, split: str):
    examples = one.splits[split]
    corpus = sorted(
        zip(examples.texts, examples.labels.tolist(), range(len(examples)), strict=True),
        key=lambda z: (len(z[0].split()), z[1]),
    )
    x = [np.float32(table.vectors[text]) for text, _, _ in corpus]
    return x, [label for _, label, _ in corpus], [place for _, _, place in corpus]


def test_nested_cross_validation_written_out() -> None:
    """Outer folds, inner choice, 5% held out of the outer training set; first of equal scores."""
    one = task("CR", size=63)
    table = encoder_of(one)
    x, y, places = sorted_examples(one, table, "all")
    fitted = literally(x, y, 2)
    dev, tests, correct = [], [], np.full(63, -1)
    for train, test in skf().split(np.zeros(63), y):
        scores = []
        for reg in REGS:
            inner = [
                fitted(train[a], train[b], reg)[0]
                for a, b in skf().split(np.zeros(len(train)), np.array(y)[train])
            ]
            scores.append(round(100 * np.mean(inner), 2))
        dev.append(np.max(scores))
        found = fitted(train, None, REGS[np.argmax(scores)])[1]
        right = [found[i] == y[i] for i in test]
        tests.append(round(100 * np.mean(right), 2))
        correct[[places[i] for i in test]] = right
    score = transfer_task(table, one, mode="prototyping")
    assert score.accuracy == round(np.mean(tests), 2)
    assert score.devacc == round(np.mean(dev), 2)
    assert score.correct.tolist() == correct.tolist()
    assert score.correct.dtype == np.int8
    assert score.f1 is None
    assert 50 < score.accuracy < 100
    ((texts, batch, _),) = table.calls
    assert sorted(texts) == sorted(one.splits["all"].texts)
    assert batch == 128


@pytest.mark.parametrize(("name", "classes"), [("TREC", 4), ("MRPC", 2)])
def test_cross_validation_on_the_training_set_written_out(name: str, classes: int) -> None:
    one = task(name, size=64, classes=classes)
    table = encoder_of(one)

    def features(split: str):
        examples = one.splits[split]
        firsts, seconds = examples.texts, examples.seconds or examples.texts
        corpus = sorted(
            zip(firsts, seconds, examples.labels.tolist(), range(64), strict=True),
            key=lambda z: (len(z[0].split()), len(z[1].split()) if name == "MRPC" else 0, z[2]),
        )
        a, b = (np.float32([table.vectors[z[side]] for z in corpus]) for side in (0, 1))
        x = np.c_[np.abs(a - b), a * b] if name == "MRPC" else a
        return list(x), [z[2] for z in corpus], [z[3] for z in corpus]

    x, y, _ = features("train")
    test_x, test_y, places = features("test")
    fitted = literally(x + test_x, y + test_y, classes)
    scores = [
        round(100 * np.mean([fitted(a, b, r)[0] for a, b in skf().split(np.zeros(64), y)]), 2)
        for r in REGS
    ]
    found = fitted(np.arange(64), None, REGS[np.argmax(scores)])[1][64:]
    right = found == np.array(test_y)
    score = transfer_task(table, one, mode="prototyping")
    assert score.accuracy == round(100 * np.mean(right), 2)
    assert score.devacc == max(scores)
    assert score.correct[places].tolist() == right.tolist()
    f1 = round(100 * f1_score(test_y, found), 2) if name == "MRPC" else None
    assert score.f1 == f1
    assert score.numbers() == {
        "accuracy": score.accuracy, "devacc": score.devacc, **({"f1": f1} if f1 else {})
    }  # fmt: skip


def test_given_split_written_out() -> None:
    one = task("SST2", size=50)
    table = encoder_of(one)
    parts = [sorted_examples(one, table, split) for split in ("train", "dev", "test")]
    x, y, places = ([item for part in parts for item in part[i]] for i in range(3))
    fitted = literally(x, y, 2)
    train, dev = np.arange(50), np.arange(50, 100)
    scores = [round(100 * fitted(train, dev, reg)[0], 2) for reg in REGS]
    # once more with the chosen one, as SentEval does: the same classifier again
    found = fitted(train, dev, REGS[np.argmax(scores)])[1][100:]
    right = found == np.array(y[100:])
    score = transfer_task(table, one, mode="prototyping")
    assert (score.accuracy, score.devacc) == (round(100 * np.mean(right), 2), max(scores))
    assert score.correct[places[100:]].tolist() == right.tolist()


@pytest.fixture
def seven(monkeypatch: pytest.MonkeyPatch) -> dict[str, TransferTask]:
    """Seven small tasks, which are those of the folder ``seven``."""
    made = {name: task(name, size=40) for name in TASKS}

    def load(path: Path, only: Sequence[str] | None) -> dict[str, TransferTask]:
        return {name: made[name] for name in only or made}

    monkeypatch.setattr(transfer_sets, "load_transfer", load)
    return made


def transfer(encoder, **options):
    settings = {"mode": "prototyping", "results": None}
    return isotrope.evaluate(encoder, transfer="seven", **(settings | options))


@pytest.mark.usefixtures("terminal")
def test_all_seven_and_some(seven, capsys: pytest.CaptureFixture[str]) -> None:
    table = encoder_of(*seven.values())
    result = transfer(table, progress=True, batch_size=7)
    assert (result.kind, result.name) == ("transfer", "table")
    assert list(result.details["tasks"]) == list(TASKS)
    accuracies = [result.details["tasks"][name]["accuracy"] for name in TASKS]
    average = round(float(np.mean(accuracies)), 2)
    expected = dict(zip(TASKS, accuracies, strict=True)) | {"transfer_average": average}
    assert result.metrics == expected
    assert result.details["transfer_average"] == average
    assert result.details["mode"] == "prototyping"
    assert {name: len(values) for name, values in result.items.items()} == dict.fromkeys(TASKS, 40)
    assert set(result.details["tasks"]["MRPC"]) == {"accuracy", "devacc", "f1"}
    assert {(batch, progress) for _, batch, progress in table.calls} == {(7, True)}
    shown = capsys.readouterr().err
    for bar in ("MR: 100%", "105/105", "TREC: 100%", "21/21", "SST2: 100%", "4/4"):
        assert bar in shown
    some = transfer(table, only=["TREC", "CR"], progress=False)
    assert list(some.metrics) == ["TREC", "CR"]
    assert some.metrics["CR"] == result.metrics["CR"]
    assert capsys.readouterr().err == ""


def test_the_smallest_task() -> None:
    """One example more in a fold and the last fit would have none to stop early by."""
    small = task("MR", size=26)
    scores = [
        transfer_task(encoder_of(small), small, mode="prototyping", fit=way)
        for way in (fit, fit_sequential)
    ]
    assert scores[0].accuracy == scores[1].accuracy > 0
    with pytest.raises(InputError, match=r"at least 13 examples of each class of MR, .* 12"):
        transfer_task(Unused(), task("MR", size=25), mode="prototyping")


class Unused:
    name = "unused"

    def encode(self, texts):
        raise AssertionError("encoded before everything was checked")


def test_what_is_wrong_is_said_before_encoding(seven, monkeypatch) -> None:
    seven["TREC"] = task("TREC", size=29, classes=3)
    with pytest.raises(InputError, match=r"at least 13 examples of each class of TREC, .* 9"):
        transfer(Unused())
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[eval\]'.*'sklearn'"):
        transfer(Unused())


@pytest.mark.nightly
def test_real_questions_real_encoder(shared_data, minilm) -> None:
    """TREC: both ways agree, and beat the logistic regression on TF-IDF in the manifest."""
    data = load_transfer(shared_data / "transfer", ["TREC"])
    scores = {}
    vectors: dict[str, np.ndarray] = {}

    class Once:
        name = "once"

        def encode(self, texts, batch_size=32):
            new = [text for text in texts if text not in vectors]
            vectors.update(zip(new, minilm.encode(new, batch_size=batch_size), strict=True))
            return np.array([vectors[text] for text in texts])

    for name, way in (("batched", fit), ("sequential", fit_sequential)):
        scores[name] = transfer_task(Once(), data["TREC"], mode="prototyping", fit=way)
    assert scores["batched"].accuracy == pytest.approx(scores["sequential"].accuracy, abs=0.41)
    assert scores["batched"].accuracy > 88.8
    assert (scores["batched"].correct != scores["sequential"].correct).sum() <= 2
