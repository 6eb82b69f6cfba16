"""Store: a line for each cell, whatever stopped whoever wrote it."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from papers.machinery.job import Cell
from papers.machinery.store import Store


def result(value: float, **details: object) -> Result:
    return Result("text", "x", {"value": value}, dict(details), {"seconds": 2.0})


def cell(number: int, seed: int = 0) -> Cell:
    return Cell("text", {"number": number}, seed, f"number {number}")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    store = Store(tmp_path)
    for number in range(3):
        store.keep(cell(number), result(number / 2))
    return tmp_path


def test_what_was_kept_is_found_again(filled: Path) -> None:
    store = Store(filled)
    assert store.find(cell(2)) == result(1.0)
    assert store.find(cell(2, seed=1)) is None
    assert store.seconds == {"text": [2.0, 2.0, 2.0]}


def test_a_line_says_everything(filled: Path) -> None:
    line = json.loads((filled / "text.jsonl").read_text().splitlines()[1])
    assert line["key"] == cell(1).key
    assert line["cell"] == {"work": "text", "settings": {"number": 1}, "seed": 0}
    assert line["title"] == "number 1"
    assert line["result"]["metrics"] == {"value": 0.5}


@pytest.mark.parametrize("size", [1, 40, 70_000])
def test_a_line_that_was_cut_off_is_dropped_and_overwritten(filled: Path, size: int) -> None:
    file = filled / "text.jsonl"
    whole = file.read_bytes()
    store = Store(filled)
    file.write_bytes(whole + (b'{"key": "' + b"x" * size)[:size])
    again = Store(filled)
    assert again.find(cell(2)) == result(1.0)
    again.keep(cell(3), result(1.5))
    assert file.read_bytes().startswith(whole + b'{"key"')
    assert file.read_bytes().count(b"\n") == 4
    assert Store(filled).find(cell(3)) == result(1.5)
    assert store.find(cell(3)) is None  # what it knew when it was opened


def test_what_was_cut_off_in_the_first_line_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.jsonl").write_bytes(b'{"key": "cut')
    store = Store(tmp_path)
    store.keep(cell(0), result(0.0))
    assert Store(tmp_path).find(cell(0)) == result(0.0)


def test_values_that_json_lacks_are_none_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.keep(cell(0), result(float("nan"), looks=[{"a": float("inf")}, {"a": 1.0}]))
    for one in (store, Store(tmp_path)):
        found = one.find(cell(0))
        assert found is not None
        assert found.metrics == {"value": None}
        assert found.details == {"looks": [{"a": None}, {"a": 1.0}]}


def test_texts_may_hold_any_end_of_line(tmp_path: Path) -> None:
    text = "one\u2028two\x85three\nfour\r\x0bfive"
    Store(tmp_path).keep(cell(0), result(1.0, text=text))
    Store(tmp_path).keep(cell(1), result(2.0))
    found = Store(tmp_path).find(cell(0))
    assert found is not None
    assert found.details["text"] == text
    assert Store(tmp_path).find(cell(1)) == result(2.0)


def test_a_key_is_that_of_the_cell_and_not_what_stands_there(filled: Path) -> None:
    file = filled / "text.jsonl"
    file.write_text(file.read_text().replace(cell(1).key, "0" * 16))
    assert Store(filled).find(cell(1)) == result(0.5)


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
    with pytest.raises(InputError, match=r"text\.jsonl:2 is not a result of a cell .* measure it"):
        Store(filled)


def test_what_is_no_text_is_named(filled: Path) -> None:
    (filled / "text.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"cannot read .*text\.jsonl"):
        Store(filled)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "cells")
    with pytest.raises(InputError, match=r"cannot write .*text\.jsonl: not a directory"):
        store.keep(cell(0), result(0.0))
    with pytest.raises(InputError, match=r"cannot write .*\.lock"), store.writing():
        raise AssertionError


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path).writing():
        refused = pytest.raises(InputError, match="another process is measuring into")
        with refused, Store(tmp_path).writing():
            raise AssertionError
        assert Store(tmp_path).find(cell(0)) is None  # looking is always possible
    with Store(tmp_path).writing():
        pass


def _die_writing(folder: Path) -> None:
    with Store(folder).writing():
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_died_keeps_nobody_out(tmp_path: Path) -> None:
    dying = multiprocessing.get_context("spawn").Process(target=_die_writing, args=(tmp_path,))
    dying.start()
    dying.join()
    assert (tmp_path / ".lock").exists()
    with Store(tmp_path).writing():
        pass
