"""Work that only the first of two real processes does, and whose result both get."""

from pathlib import Path

import pytest

from isotrope.core.distributed import of_first
from isotrope.core.errors import InputError, LostProcess
from tests.two_processes import on_two


def failing() -> int:
    raise InputError("give more")


def of_rank(rank: int) -> tuple[int, str]:
    chosen = of_first(lambda: 10 + rank)
    try:
        of_first(failing)
    except (InputError, LostProcess) as error:
        return chosen, type(error).__name__
    raise AssertionError


def test_what_the_first_process_chooses_holds_in_all(tmp_path: Path) -> None:
    assert on_two(of_rank, tmp_path) == [(10, "InputError"), (10, "LostProcess")]
    assert of_first(lambda: 3) == 3
    with pytest.raises(InputError):
        of_first(failing)
