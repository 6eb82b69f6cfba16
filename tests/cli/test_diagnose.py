"""``isotrope diagnose``: what it prints, what it keeps, and what it refuses."""

import errno
import json
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from isotrope.diagnostics import target
from isotrope.diagnostics.findings import MISSED
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.paradigm.objective import Objective
from tests.reports.folders import write_run
from tests.training.conftest import sentences


@pytest.fixture
def fallen(tmp_path: Path) -> Path:
    """A finished run whose dev score fell, and whose text has gone."""
    return write_run(tmp_path / "run", dev=(80.0, 85.0, 79.0))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained encoder, and texts beside it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("diagnose")
    texts = sentences(200)
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")
    SentenceEncoder.scratch(texts, width=32, layers=1, vocabulary=500).save(folder / "model")
    return folder


def test_the_verdict_comes_first_and_is_kept(run, fallen: Path) -> None:
    found = run("diagnose", fallen)
    assert found.code == 0
    lines = found.out.splitlines()
    assert lines[0] == "verdict: overfitting"
    assert "   - best dev score minus the last: 6 points (a fault if above 1.5)" in lines
    assert "   change: --max-steps 20" in lines
    assert lines[-1].startswith("examined: 20 logged steps; 3 scores")
    kept = json.loads((fallen / "diagnosis.json").read_text())
    assert kept["verdict"] == ["overfitting"]
    assert set(kept) == {"verdict", "findings", "notes", "numbers", "judgement"}


def test_json_is_what_is_kept_and_nothing_else(run, fallen: Path) -> None:
    (fallen / "diagnosis.json").write_text("an older one")
    found = run("diagnose", fallen, "--json")
    assert found.code == 0
    assert json.loads(found.out) == json.loads((fallen / "diagnosis.json").read_text())
    (finding,) = json.loads(found.out)["findings"]
    assert set(finding) == {"verdict", "evidence", "source", "change", "detail", "title"}


def test_json_says_in_ascii_what_was_not_examined(run, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "größe")
    (folder / "model").mkdir()
    found = run("diagnose", folder, "--json")
    note = json.loads(found.out)["notes"][-1]
    assert note.startswith(MISSED)
    assert "größe" in note
    assert found.out.isascii()


def test_what_cannot_be_kept_is_told_all_the_same(
    run, fallen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> NoReturn:
        raise OSError(errno.ENOSPC, "no space left on device", str(path))

    monkeypatch.setattr(target, "write_text", full)
    found = run("diagnose", fallen)
    assert found.code == 0
    assert found.out.startswith("verdict: overfitting")
    assert "warning: the diagnosis is not saved" in found.err


def test_a_healthy_run(run, tmp_path: Path) -> None:
    found = run("diagnose", write_run(tmp_path / "run", judgement="worse"), "--json")
    assert found.code == 0
    record = json.loads(found.out)
    assert (record["verdict"], record["findings"]) == (["healthy"], [])
    assert record["judgement"]["outcome"] == "worse"
    assert {number["name"] for number in record["numbers"]} >= {"dead_early", "above_bound"}
    printed = run("diagnose", tmp_path / "run").out.splitlines()
    assert printed[0] == "verdict: healthy; outcome: worse"
    assert printed[2] == "worse: as it was judged"


def test_a_model_with_data_and_an_objective(run, model: Path) -> None:
    asked = ["diagnose", model / "model", "--data", model / "texts.txt", "--objective", "mpt"]
    found = run(*asked, "--objective.margin", "2", "--json")
    assert found.code == 0
    assert "never-dissipating" in json.loads(found.out)["verdict"]
    assert not (model / "model" / "diagnosis.json").exists()


def test_a_plugin_and_columns(
    run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Objective, "registered", dict(Objective.registered))
    (tmp_path / "mine.py").write_text(
        "from isotrope.objectives.infonce import InfoNCE\n"
        "class DoctorsOwn(InfoNCE, paper=InfoNCE.paper):\n    pass\n"
    )
    table = tmp_path / "table.csv"
    table.write_text("id,question,answer\n" + "".join(f"{i},{t},{t}\n" for i, t in enumerate(
        sentences(40))))  # fmt: skip
    found = run(
        *("diagnose", model / "model", "--data", table, "--columns", "question,answer"),
        *("--plugin", tmp_path / "mine.py", "--objective", "doctorsown"),
    )
    assert found.code == 0
    assert "pairs (table.csv)" in found.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere/to/be/found"], "there is no folder"),
        (["{run}", "--objective.temperature", "1"], "needs --objective NAME"),
        (["{run}", "--objective", "infonse"], "did you mean 'infonce'"),
        (["{run}", "--data", "nothing.txt"], "has no saved model that could embed nothing.txt"),
        (["{run}", "--colour"], "see `isotrope diagnose --help`"),
        ([], "RUN_OR_MODEL"),
    ],
)
def test_what_is_refused(run, fallen: Path, arguments: list[str], message: str) -> None:
    found = run("diagnose", *(a.format(run=fallen) for a in arguments))
    assert found.code == 2
    *before, error = found.err.splitlines()
    assert message in error
    assert [line[:8] for line in before] in ([], ["reading "])
    assert not (fallen / "diagnosis.json").exists()


def test_the_help_teaches(run) -> None:
    found = run("diagnose", "--help")
    assert found.code == 0
    for word in ("RUN_OR_MODEL", "--data", "--json", "diagnosis.json", "docs/diagnosis.md"):
        assert word in found.out


def test_of_a_model_and_text_there_are_the_statistics_of_li_et_al(run, model: Path) -> None:
    asked = ["diagnose", model / "model", "--data", model / "texts.txt"]
    found = json.loads(run(*asked, "--json").out)["model"]
    assert 0 < found["positive_angle"][0] < found["negative_angle"][0]
    low, middle, high = found["negative_cosine"]
    assert low < middle < high < found["positive_cosine"][1]
    assert 0 < found["hardest_share"] < 1
    assert found["ratios"]["arccon"] > 1
    assert found["uncovered"]["kind"] in ("raw", "covered", "trained", "unknown")
    printed = " ".join(run(*asked).out.split())
    for words in ("- angles to positives: mean 0.", "- hardest negative: ", "- encoder "):
        assert words in printed
    assert "model" not in json.loads(run("diagnose", model / "model", "--json").out)
