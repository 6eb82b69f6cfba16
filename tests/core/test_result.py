"""Result: the round trip through a file, numbers JSON has no word for, and damaged files."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotrope.core import result
from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance


@pytest.fixture(autouse=True)
def _new_process() -> None:
    """Forget what git said: it is asked once in a process."""
    result._git_state_of.cache_clear()


def example() -> Result:
    return Result(
        kind="train",
        name="run α",
        metrics={"dev_best": 87.13, "steps": 50, "verdict": "better", "ratio": None},
        details={"objective": {"name": "infonce", "parameters": {"temperature": 0.05}}},
        provenance={"seed": 3},
    )


def test_round_trip(tmp_path: Path) -> None:
    example().save(tmp_path / "deep" / "result.json")
    assert Result.load(tmp_path / "deep" / "result.json") == example()


def test_the_file_is_text_a_person_can_read(tmp_path: Path) -> None:
    example().save(tmp_path / "result.json")
    text = (tmp_path / "result.json").read_text(encoding="utf-8")
    assert '"name": "run α"' in text
    assert text.endswith("}\n")


def test_numbers_without_a_json_word_become_null() -> None:
    result = Result(
        kind="train",
        name="x",
        metrics={"loss": math.nan, "ratio": math.inf, "norm": -math.inf, "steps": 1},
        details={"table": [[1.5, math.nan], (math.inf,)], "file": Path("a/b"), 3: "three"},
    )
    fields = json.loads(result.to_json())
    assert fields["metrics"] == {"loss": None, "ratio": None, "norm": None, "steps": 1}
    assert fields["details"] == {"table": [[1.5, None], [None]], "file": "a/b", "3": "three"}


def test_numbers_of_numpy_are_numbers() -> None:
    metrics: dict[str, Any] = {"loss": np.float32(0.5), "ratio": np.float32(math.nan)}
    details = {"steps": np.int64(3), "done": np.bool_(True), "list": [np.float64(2.5)]}
    fields = json.loads(Result("train", "x", metrics, details).to_json())
    assert fields["metrics"] == {"loss": 0.5, "ratio": None}
    assert fields["details"] == {"steps": 3, "done": True, "list": [2.5]}
    assert fields["details"]["done"] is True


def test_saving_what_json_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    example().save(file)
    with pytest.raises(TypeError, match="not JSON serializable"):
        Result(kind="train", name="x", metrics={}, details={"a": object()}).save(file)
    assert Result.load(file) == example()


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: check the path; there is no such file"):
        Result.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"kind": "train", "name": "x", "metr',
        b"\xff\xfe\x00 garbage",
        b"[1, 2]",
        b'{"kind": "train"}',
        b'{"kind": "train", "name": "x", "metrics": {}, "surplus": 1}',
        b"3",
        b"null",
        b'"text"',
    ],
    ids=["empty", "cut short", "binary", "list", "fields missing", "surplus", "3", "null", "text"],
)
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(content)
    said = r"result\.json.* is not (UTF-8 text|a result of isotrope .*restore it)"
    with pytest.raises(InputError, match=said):
        Result.load(file)


def test_provenance_says_what_repeats_a_result() -> None:
    found = provenance(seed=3, data="abc", command=["isotrope", "train"])
    assert found["seed"] == 3
    assert found["data"] == "abc"
    assert found["command"] == ["isotrope", "train"]
    assert "torch" in found["versions"]
    json.dumps(found)


def test_provenance_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance()["git"] is None


def test_provenance_in_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "x").write_text("1")
    git("add", "x")
    git("commit", "-q", "-m", "x")
    monkeypatch.chdir(tmp_path)
    clean = provenance()["git"]
    assert len(clean["commit"]) == 40
    assert clean["modified"] is False
    (tmp_path / "x").write_text("2")
    result._git_state_of.cache_clear()
    assert provenance()["git"] == {"commit": clean["commit"], "modified": True}


def test_a_branch_of_any_name_in_any_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["checkout", "-qb", "größe"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    commit = ["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(commit, cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    code = "from isotrope.core.result import provenance; print(len(provenance()['git']['commit']))"
    found = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code],
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        text=True,
    )
    assert found.stdout == "40\n", found.stderr


def test_git_is_started_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    run = subprocess.run

    def counted(*arguments: object, **options: object) -> object:
        started.append(arguments)
        return run(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", counted)
    assert provenance()["git"] == provenance()["git"]
    assert len(started) == 1


def test_provenance_before_the_first_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert provenance()["git"] is None


def test_a_repository_runs_no_command_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    monitor.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(monitor)], cwd=tmp_path, check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.fsmonitor="]
    commit = ["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(commit, cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert provenance()["git"]["modified"] is False
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "status"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "ran").exists(), "git itself would"


def test_provenance_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance()["git"] is None
