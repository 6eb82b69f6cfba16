"""Thresholds: every one decides something."""

from pathlib import Path

import pytest

from isotrope.diagnostics.verdict import THRESHOLDS, compared, crosses
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


@pytest.mark.parametrize("name", ["temperature_of_cosines", "high_temperature"])
def test_a_number_that_equals_a_limit_except_for_rounding_is_healthy(name: str) -> None:
    limit, side = THRESHOLDS[name].value, 1 if THRESHOLDS[name].side == "above" else -1
    for rounding in (-1e-6, 0, 1e-6):
        assert not crosses(name, limit * (1 + rounding))
    assert crosses(name, limit * (1 + 0.01 * side))
