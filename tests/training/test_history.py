"""The log of a run as a table."""

from pathlib import Path

import pytest

from isotrope.training.history import History


@pytest.mark.parametrize("rest", ["10,0.9,7", "10,0.9,", "10", '10,"0.'])
def test_a_line_that_is_being_written_is_left_out(tmp_path: Path, rest: str) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text(f"step,loss,dev\n0,1.5,60\n{rest}")
    assert list(History.read(file)) == [{"step": 0, "loss": 1.5, "dev": 60}]
