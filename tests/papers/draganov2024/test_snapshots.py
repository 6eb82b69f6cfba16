"""Looks at pairs in the plane: their numbers at known places, their tables."""

import csv
import io
import math

import pytest
import torch

from papers.draganov2024.snapshots import MEASURES, LatentSnapshot, course_csv, pairs_csv


def around(angles: list[float], length: float = 1.0) -> torch.Tensor:
    turned = torch.tensor(angles, dtype=torch.float64)
    return length * torch.stack([turned.cos(), turned.sin()], dim=1)


def test_numbers_of_pairs_at_known_angles() -> None:
    look = LatentSnapshot(
        3, around([0.0, 0.5, 1.0, 2.0], 2.5), around([0.3, 0.7, 3.0, 2.0 + 3.0], 9.0)
    )
    found = look.measures()
    assert tuple(found) == MEASURES
    assert found["norm"] == pytest.approx(2.5)
    assert found["angle"] == pytest.approx((0.3 + 0.2 + 2.0 + 3.0) / 4)
    assert found["opposite_halves"] == 0.5
    assert found["far_opposite"] == 0.25
    torch.testing.assert_close(look.cosines[0], torch.tensor(math.cos(0.3)).double())


@pytest.mark.parametrize(
    ("angles", "line"),
    [
        ([1.0, 1.0, 1.0], 1.0),
        ([1.0, 1.0 + math.pi, 1.0], 1.0),  # antipodes are one line
        ([0.0, math.pi / 2], 0.0),
        ([i * math.pi / 8 for i in range(16)], 0.0),
        ([0.0, math.pi / 4], math.sqrt(0.5)),
    ],
)
def test_how_much_lies_on_one_line(angles: list[float], line: float) -> None:
    look = LatentSnapshot(0, around(angles), around(angles))
    assert look.measures()["clusters"] == pytest.approx(line, abs=1e-12)


def test_tables() -> None:
    runs = {
        "a, b": [
            LatentSnapshot(0, around([0.0, 1.0]), around([0.5, 1.0])),
            LatentSnapshot(1, around([0.0]) * 3, around([0.0])),
        ]
    }
    course = list(csv.DictReader(io.StringIO(course_csv(runs))))
    assert [line["epoch"] for line in course] == ["0", "1"]
    assert course[0]["run"] == "a, b"
    assert float(course[1]["norm"]) == 3
    pairs = list(csv.DictReader(io.StringIO(pairs_csv(runs))))
    assert len(pairs) == 3
    assert float(pairs[0]["cosine"]) == pytest.approx(math.cos(0.5), rel=1e-5)
    assert float(pairs[2]["x"]) == 3
