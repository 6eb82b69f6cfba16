"""Trainings on data that are read while training (``--streaming``)."""

import json
from pathlib import Path
from typing import Any

import pytest

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.training.fit_text import fit
from isotrope.training.settings import TrainSettings
from isotrope.training.text import train
from tests.refused import refused_setting
from tests.training.conftest import sentences
from tests.training.interrupted import power_cut


@pytest.fixture
def streaming(quick: dict[str, Any]) -> dict[str, Any]:
    """Six steps of 16 from buffers of 100 of 300 texts, about three steps each."""
    return {**quick, "streaming": 100, "head": "none", "dev": "auto", "holdout": 0.4}


def test_an_interrupted_run_ends_as_the_whole_one(
    streaming: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(TrainSettings.read(streaming), lines=True)
    assert "streaming 100 records at a time; the first records are:" in capsys.readouterr().err
    assert not (whole.output / "tokens").exists()
    data = whole.result.details["data"]
    assert data["holdout"] > 50
    assert 96 <= data["records"] <= 200, "those of the buffers so far"
    rows = (whole.output / "metrics.csv").read_text().splitlines()
    assert rows[0].startswith("step,epoch,")
    assert all(row.split(",")[1] == "" for row in rows[1:]), "where an epoch ends is not known"
    other = {**streaming, "output": str(tmp_path / "other")}
    with power_cut(5):
        fit(**other)
    assert len(list((tmp_path / "other/tokens").glob("*.json"))) >= 2
    again = fit(**other, resume=True)
    assert again.result.details["model"] == whole.result.details["model"]
    assert again.result.metrics["loss"] == whole.result.metrics["loss"]
    assert "4 logged steps" in again.diagnose().notes[0]


def test_a_stream_of_the_hub(
    streaming: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    file = tmp_path / "rows.jsonl"
    pairs = zip(sentences(200), sentences(200, seed=1), strict=True)
    file.write_text("".join(json.dumps({"q": a, "a": b, "n": 1}) + "\n" for a, b in pairs))
    load = datasets.load_dataset

    def from_file(name: str, split: str, streaming: bool) -> Any:
        assert (name, streaming) == ("somebody/pairs", True)
        return load("json", data_files=str(file), split=split, streaming=streaming)

    monkeypatch.setattr(datasets, "load_dataset", from_file)
    monkeypatch.chdir(tmp_path)
    options = {**streaming, "columns": "q,a", "max_steps": 2, "dev": None}
    outcome = fit("somebody/pairs", **{k: v for k, v in options.items() if k != "files"})
    assert outcome.result.details["data"]["unit"] == "pairs"
    assert Result.load(outcome.output / "result.json").metrics["steps"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_steps": None}, r"streaming=\d+ .add max_steps: an epoch's length is unknown"),
        ({"devices": 2, "device": "cpu"}, r"streaming=\d+ .use a single process to stream"),
        ({"files": ["a=a.txt", "b=b.txt"]}, r"streaming=\d+ .give a single data set to stream"),
        (
            {"streaming": 8},
            r"streaming=\d+ .read at least as many records at a time as the batch size, 16",
        ),
        ({"streaming": 1}, r"^streaming=\d+:? input should be greater than or equal to 2"),
        (
            {"streaming": 20},
            r"larger buffer, such as streaming=200, .* first 20 records, only 11 can be trained on",
        ),
        ({"streaming": 1000}, r"one buffer of streaming=1000 holds all 300 records"),
        ({"files": sentences(4)}, r"streaming=\d+ .leave it out: the data are already in memory"),
    ],
)
def test_what_a_stream_does_not_have(
    streaming: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit(**{**streaming, **change})
    assert not Path(streaming["output"]).exists()


def test_processes_of_torchrun_are_refused(
    streaming: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isotrope.training.run.launched_processes", lambda: (2, 2))
    with refused_setting("streaming"):
        fit(**streaming)
