"""Every bad input of the corpus is refused on one line, and nothing is written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inputs import Bench, Case, corpus, summary, tried

EVERY = 16
"""Of the corpus, one of so many is tried by `make test`; the others by `make nightly`."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    return Bench(tmp_path_factory.mktemp("bench"))


def _marked(number: int, case: Case) -> object:
    marks = () if number % EVERY == 0 else pytest.mark.nightly
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.filterwarnings("default")  # a warning must not be what refuses
@pytest.mark.parametrize("case", [_marked(n, case) for n, case in enumerate(corpus())])
def test_refused_on_one_line(case: Case, bench: Bench, tmp_path: Path) -> None:
    wrong, _ = tried(case, bench, tmp_path)
    assert wrong == []


def test_there_are_enough() -> None:
    assert len(corpus()) > 1500
    assert len(summary()) >= 20
    assert min(summary().values()) >= 3


@pytest.mark.parametrize("what", ["nothing wrong", "written", "two lines", "a traceback"])
def test_what_is_not_refused_is_seen(what: str, bench: Bench, tmp_path: Path) -> None:
    def make(room: Path, bench: Bench) -> list[object]:
        if what == "nothing wrong":
            return ["objectives", "infonce"]
        if what == "written":
            return ["encode", bench.text, bench.sentences, "-o", "out.npy"]
        if what == "two lines":
            (room / "p.py").write_text("import sys\nprint('error: no', file=sys.stderr)\n")
            return ["objectives", "--plugin", "p.py"]
        (room / "p.py").write_text("raise BaseException('a bug')\n")
        return ["objectives", "--plugin", "p.py"]

    wrong, _ = tried(Case(what, make), bench, tmp_path)
    expected = {
        "nothing wrong": "exit code 0",
        "written": "written: room/out.npy",
        "two lines": "not one line",
        "a traceback": "BaseException: a bug",
    }
    assert any(expected[what] in one for one in wrong), wrong
