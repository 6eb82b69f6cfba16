"""Loops of benchmarks/loops.py whose losses are put together in ways of their own."""

from functools import cache
from typing import Any

import pytest

from benchmarks.loops import CELLS, LOOPS, RIGHT, diagnosis, exists

UNKNOWN = {"not-examined"}


@cache
def trained(loop: str, cell: str) -> Any:
    """Return what the doctor says of a training, and the doctor."""
    return diagnosis(LOOPS[loop], CELLS[cell])


@pytest.mark.parametrize(
    ("loop", "cell", "verdicts"),
    [
        # positives by rows, all other pairs from one product
        ("simclr-batch-norm", "healthy", RIGHT["healthy"]),
        # rows that autograd does not keep
        ("triplet-fused", "healthy", RIGHT["healthy"]),
        ("triplet-fused", "shuffled-positives", UNKNOWN),
        # squared distances of unit rows are cosines
        ("euclidean-softmax", "temperature-too-high", RIGHT["temperature-too-high"]),
        # a queue is older than the positives
        ("moco", "healthy", RIGHT["healthy"]),
        ("moco", "shuffled-positives", RIGHT["shuffled-positives"]),
        ("moco", "duplicates", RIGHT["duplicates"]),
        # labels that follow from the pairs that a loss picks
        ("batch-hard", "healthy", RIGHT["healthy"]),
        ("batch-hard", "shuffled-positives", RIGHT["shuffled-positives"]),
        ("hinge-of-pairs", "healthy", RIGHT["healthy"]),
        ("hinge-of-pairs", "shuffled-positives", RIGHT["shuffled-positives"]),
        # the other view of a row is near, whatever the labels are
        ("supcon-two-views", "shuffled-positives", RIGHT["shuffled-positives"]),
        # a teacher's softmax has no positives
        ("similarities-distilled", "healthy", UNKNOWN),
        # pairs that are learnt by heart, once their texts come again
        ("words-infonce", "healthy", RIGHT["healthy"]),
        ("words-infonce", "shuffled-positives", RIGHT["shuffled-positives"]),
        # the cause before its effects
        ("supcon", "temperature-too-low", RIGHT["temperature-too-low"]),
    ],
)
def test_a_loop_is_read_whatever_its_style(loop: str, cell: str, verdicts: set[str]) -> None:
    found, doctor = trained(loop, cell)
    assert found.verdict[0] in verdicts, f"{found}\n{doctor.rows[-1]}"


def test_every_loop_has_a_sound_training_and_a_fault() -> None:
    for name, how in LOOPS.items():
        assert exists(how, "healthy"), name
        assert sum(exists(how, cell) for cell in RIGHT) > 1, name
    assert {how.judged for how in LOOPS.values()} == {True, False}


def test_a_doctor_prints_its_diagnosis() -> None:
    found, doctor = trained("triplet-fused", "healthy")
    assert str(doctor).startswith("verdict: ")
    assert (
        repr(doctor) == f"Doctor(every={doctor.anatomy.every}), {len(doctor.rows)} steps measured"
    )
    assert found.verdict[0] in str(doctor)
