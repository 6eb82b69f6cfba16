"""A bar is for a terminal, and for what takes longer than a moment."""

import itertools

import pytest

from isotrope.core import progress
from isotrope.core.progress import bar


def drawn(capsys: pytest.CaptureFixture[str], total: int | None = 7, *, show: bool = True) -> str:
    with bar(total, "encode", "texts", show=show) as done:
        done(3)
        done(4)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "encode: 100%" in (said := drawn(capsys))
    assert "7/7" in said
    assert "7 texts [" in drawn(capsys, None)
    assert drawn(capsys, show=False) == ""
    assert drawn(capsys, 0) == ""


@pytest.mark.usefixtures("terminal")
def test_what_is_over_in_a_moment_needs_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY", 1)
    assert "7/7" not in drawn(capsys)


def test_elsewhere_there_are_lines_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drawn(capsys) == ""
    clock = itertools.count(0, progress.LINES / 4)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with bar(1000, "encode", "texts", show=True) as done:
        for _ in range(10):
            done(100)
    with bar(None, "read", show=True) as done:
        done(3)
        done(4)
    assert capsys.readouterr().err.splitlines() == [
        "encode: 100 of 1,000 texts, about 45 s left",
        "encode: 500 of 1,000 texts, about 25 s left",
        "encode: 900 of 1,000 texts, about 5 s left",
        "encode: 1,000 of 1,000 texts, 55 s",
        "read: 3",
        "read: 7, 15 s",
    ]


def test_no_last_line_claims_that_work_that_failed_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINES", 0.0)
    shown = bar(9, "read", show=True)
    shown.__enter__()(4)
    error = KeyError()
    assert not shown.__exit__(KeyError, error, None)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["read: 4 of 9"]
