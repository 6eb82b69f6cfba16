"""Store: a line for each job, whatever stopped whoever wrote it."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from isotrope.core import InputError, Result
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore


def result(value: float, **details: object) -> Result:
    return Result("text", "x", {"value": value}, dict(details), {"seconds": 2.0})


def job(number: int, seed: int = 0) -> PaperJob:
    return PaperJob("text", {"number": number}, seed, f"number {number}")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    store = JobStore(tmp_path)
    for number in range(3):
        store.keep(job(number), result(number / 2))
    return tmp_path


def test_what_was_kept_is_found_again(filled: Path) -> None:
    store = JobStore(filled)
    assert store.find(job(2)) == result(1.0)
    assert store.find(job(2, seed=1)) is None
    assert store.seconds == {"text": [2.0, 2.0, 2.0]}


def test_a_line_says_everything(filled: Path) -> None:
    line = json.loads((filled / "text.jsonl").read_text().splitlines()[1])
    assert line["key"] == job(1).key
    assert line["cell"] == {"work": "text", "settings": {"number": 1}, "seed": 0}
    assert line["title"] == "number 1"
    assert line["result"]["metrics"] == {"value": 0.5}


@pytest.mark.parametrize("size", [1, 40, 70_000])
def test_a_line_that_was_cut_off_is_dropped_and_overwritten(filled: Path, size: int) -> None:
    file = filled / "text.jsonl"
    whole = file.read_bytes()
    store = JobStore(filled)
    file.write_bytes(whole + (b'{"key": "' + b"x" * size)[:size])
    again = JobStore(filled)
    assert again.find(job(2)) == result(1.0)
    again.keep(job(3), result(1.5))
    assert file.read_bytes().startswith(whole + b'{"key"')
    assert file.read_bytes().count(b"\n") == 4
    assert JobStore(filled).find(job(3)) == result(1.5)
    assert store.find(job(3)) is None  # what it knew when it was opened


def test_what_was_cut_off_in_the_first_line_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.jsonl").write_bytes(b'{"key": "cut')
    store = JobStore(tmp_path)
    store.keep(job(0), result(0.0))
    assert JobStore(tmp_path).find(job(0)) == result(0.0)


def test_values_that_json_lacks_are_none_at_once(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    store.keep(job(0), result(float("nan"), looks=[{"a": float("inf")}, {"a": 1.0}]))
    for one in (store, JobStore(tmp_path)):
        found = one.find(job(0))
        assert found is not None
        assert found.metrics == {"value": None}
        assert found.details == {"looks": [{"a": None}, {"a": 1.0}]}


def test_texts_may_hold_any_end_of_line(tmp_path: Path) -> None:
    text = "one\u2028two\x85three\nfour\r\x0bfive"
    JobStore(tmp_path).keep(job(0), result(1.0, text=text))
    JobStore(tmp_path).keep(job(1), result(2.0))
    found = JobStore(tmp_path).find(job(0))
    assert found is not None
    assert found.details["text"] == text
    assert JobStore(tmp_path).find(job(1)) == result(2.0)


def test_a_key_is_that_of_the_cell_and_not_what_stands_there(filled: Path) -> None:
    file = filled / "text.jsonl"
    file.write_text(file.read_text().replace(job(1).key, "0" * 16))
    assert JobStore(filled).find(job(1)) == result(0.5)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        "{}",
        '{"cell": {"work": "text"}, "result": {}}',
        '{"cell": {"work": "text", "colour": 1}, "result": '
        '{"kind": "", "name": "", "metrics": {}}}',
        '{"cell": {"work": "text", "settings": 3}, "result": '
        '{"kind": "", "name": "", "metrics": {}}}',
        '{"cell": {"work": "text"}, "result": {"kind": "", "name": "", "metrics": []}}',
    ],
)
def test_a_line_that_was_edited_is_named(filled: Path, line: str) -> None:
    file = filled / "text.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], line, lines[2]]) + "\n")
    with pytest.raises(InputError, match=r"text\.jsonl:2 is not a result of a job .* measure it"):
        JobStore(filled)


def test_what_is_no_text_is_named(filled: Path) -> None:
    (filled / "text.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"cannot read .*text\.jsonl"):
        JobStore(filled)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = JobStore(tmp_path / "file" / "cells")
    with pytest.raises(NotADirectoryError, match="file/cells"):
        store.keep(job(0), result(0.0))
    with pytest.raises(InputError, match=r"cannot write .*\.lock"), store.writing():
        raise AssertionError


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with JobStore(tmp_path).writing():
        refused = pytest.raises(
            InputError, match="an earlier call of this process is measuring into"
        )
        with refused, JobStore(tmp_path).writing():
            raise AssertionError
        assert JobStore(tmp_path).find(job(0)) is None  # looking is always possible
    with JobStore(tmp_path).writing():
        pass


def _die_writing(folder: Path) -> None:
    with JobStore(folder).writing():
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_died_keeps_nobody_out(tmp_path: Path) -> None:
    dying = multiprocessing.get_context("spawn").Process(target=_die_writing, args=(tmp_path,))
    dying.start()
    dying.join()
    assert (tmp_path / ".lock").exists()
    with JobStore(tmp_path).writing():
        pass
