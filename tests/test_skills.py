"""The skills for agents say what the library does."""

from pathlib import Path

import pytest
import yaml

import isotrope
from isotrope.diagnostics.verdicts import VERDICTS

SKILL = Path(__file__).parents[1] / "skills" / "diagnose-embedding-training" / "SKILL.md"


def test_the_head_is_the_formats() -> None:
    _, head, _ = SKILL.read_text(encoding="utf-8").split("---\n", 2)
    told = yaml.safe_load(head)
    assert told.keys() == {"name", "description"}
    assert told["name"] == SKILL.parent.name
    assert len(told["description"]) <= 1024


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_has_its_change(verdict: str) -> None:
    rows = [r for r in SKILL.read_text(encoding="utf-8").splitlines() if r.startswith("| `")]
    (row,) = [r for r in rows if r.startswith(f"| `{verdict}` |")]
    assert all(cell.strip() for cell in row.split("|")[1:-1])


def test_the_arguments_it_names_exist() -> None:
    isotrope.Doctor(path="runs/mine", every=1)
