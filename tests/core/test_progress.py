"""A bar is for a terminal, and for what takes longer than a moment."""

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


def test_elsewhere_there_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY", 0)
    assert drawn(capsys) == ""
