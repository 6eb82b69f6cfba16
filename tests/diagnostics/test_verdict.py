"""Thresholds: every one decides something."""

from pathlib import Path

import pytest

from isotrope.diagnostics.verdict import THRESHOLDS, compared
from isotrope.diagnostics.verdicts import VERDICTS

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "src" / "isotrope" / "diagnostics"
FILES = [*ROOM.glob("*.py"), *(ROOM / "verdicts").glob("*.py")]
RULES = "".join(file.read_text(encoding="utf-8") for file in FILES)


DECLARED = {t.name: (v, t) for v in VERDICTS.values() for t in v.thresholds}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_every_threshold_is_used_and_has_a_source(name: str) -> None:
    verdict, threshold = DECLARED[name]
    used_by_name = RULES.count(f'"{name}"') > 1
    assert used_by_name or (verdict.when is None and threshold.measure is not None)
    assert threshold.source


def test_a_number_is_a_fault_on_one_side_only() -> None:
    above, below = THRESHOLDS["norm"], THRESHOLDS["rank_share"]
    assert above.crossed_by(above.value + 1)
    assert not above.crossed_by(above.value)
    assert below.crossed_by(0.0)
    assert not below.crossed_by(below.value)
    assert not above.crossed_by(None)


def test_evidence_brings_its_threshold() -> None:
    assert str(compared("norm", 250.0)) == "mean norm of the embeddings: 250 (a fault if above 100)"
