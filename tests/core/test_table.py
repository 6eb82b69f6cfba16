"""Tables as text."""

import math
import sys

import pytest

from isotrope.core.table import TitledTable, table

HEADER = ["name", "n", "texts"]
LONG = "what to do for a headache, a cold or a cough that does not end | " * 3
ROWS = [["a/long/path/of/a/model/that/is/copied", "1", LONG], ["b", "2", "short"]]


@pytest.mark.parametrize("least", [80, 9])
def test_a_wide_table_is_wrapped(least: int) -> None:
    lines = table(HEADER, ROWS, least).splitlines()
    assert least == 9 or max(map(len, lines)) <= 80  # 9 is not possible
    assert "".join(line[42:] for line in lines[2:-1]).replace(" ", "") == LONG.replace(" ", "")
    assert lines[2].startswith(f"{ROWS[0][0]}  1  what to do")
    assert lines[-1].split() == ["b", "2", "short"]
    assert table(HEADER, ROWS, 500) == table(HEADER, ROWS, math.inf)


def test_only_a_table_that_is_shown_on_a_terminal_is_wrapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that goes into a file, such as a model card, does not depend on the terminal."""
    whole, shown = table(HEADER, ROWS), TitledTable("", "", HEADER, ROWS)
    monkeypatch.setenv("COLUMNS", "80")
    assert str(shown).strip() == whole.strip()  # stdout is no terminal
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    assert table(HEADER, ROWS) == whole
    assert str(shown).strip() == table(HEADER, ROWS, 80).strip()
