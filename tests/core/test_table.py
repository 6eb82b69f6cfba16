"""Tables as text."""

import sys

import pytest

from isotrope.core.table import table

HEADER = ["name", "n", "texts"]
LONG = "what to do for a headache, a cold or a cough that does not end | " * 3
ROWS = [["a/long/path/of/a/model/that/is/copied", "1", LONG], ["b", "2", "short"]]


def test_a_wide_table_fits_into_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table(HEADER, ROWS)
    monkeypatch.setenv("COLUMNS", "80")
    assert table(HEADER, ROWS) == whole  # stdout is no terminal
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    lines = table(HEADER, ROWS).splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(line[42:] for line in lines[2:-1]).replace(" ", "") == LONG.replace(" ", "")
    assert lines[2].startswith(f"{ROWS[0][0]}  1  what to do")
    assert lines[-1].split() == ["b", "2", "short"]
    monkeypatch.setenv("COLUMNS", "9")
    assert table(HEADER, ROWS).splitlines()[2].split()[:2] == ROWS[0][:2]  # no less is possible
    monkeypatch.setenv("COLUMNS", "500")
    assert table(HEADER, ROWS) == whole
