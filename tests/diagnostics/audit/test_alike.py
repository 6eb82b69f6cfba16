"""Rows that belong together are found by whichever similarity shows it, however many they are."""

import numpy as np
import pytest
import torch
from torch import Tensor

from isotrope.core.views import unit
from isotrope.diagnostics.audit import neighbours
from isotrope.diagnostics.audit.alike import alike
from isotrope.diagnostics.audit.neighbours import nearest
from isotrope.diagnostics.audit.push import ledger
from isotrope.diagnostics.audit.rows import Embedded
from isotrope.objectives.infonce import InfoNCE
from tests.diagnostics.audit.handmade import of


def drawn(n: int, seed: int = 0) -> Tensor:
    return unit(torch.randn(n, 256, generator=torch.Generator().manual_seed(seed)))


def near(x: Tensor) -> Tensor:
    return unit(x + 0.05 * drawn(len(x), 9))


def found(rows: Embedded):
    return alike(rows, nearest(rows), ledger(rows, InfoNCE(), None, keep=20))


@pytest.mark.parametrize("sides", [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_one_similarity_of_the_four_is_enough(sides: tuple[int, int]) -> None:
    views = [drawn(200), drawn(200, 1)]
    views[sides[1]][120] = near(views[sides[0]][17:18])
    of_all = found(of(*views))
    assert of_all.rows[0].tolist() == [17, 120]
    assert of_all.evidence[0] > 0.6
    assert (of_all.evidence[1:] < 0.6).all()


@pytest.mark.parametrize("copies", [2, 5, 10])
def test_copies_do_not_dilute_the_evidence(copies: int) -> None:
    anchors, positives = drawn(200), drawn(200, 1)
    for view in (anchors, positives):
        view[:copies] = near(view[:1].expand(copies, -1))
    of_all = found(of(anchors, positives))
    listed = of_all.rows[of_all.evidence > 0.6]
    assert {tuple(pair) for pair in listed.tolist()} == {
        (i, j) for j in range(copies) for i in range(j)
    }


def test_a_row_near_to_all_others_is_no_evidence() -> None:
    anchors, positives = drawn(200), drawn(200, 1)
    anchors[3] = unit(positives.sum(dim=0, keepdim=True))
    assert (found(of(anchors, positives)).evidence < 0.6).all()


def test_in_clusters_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors = drawn(100)
    positives = near(anchors)
    anchors[40], positives[40] = near(anchors[7:8]), near(positives[7:8])
    anchors[50] = near(anchors[20:21])  # by one similarity of the four
    rows = of(anchors, positives)
    every = found(rows)
    for constant, size in {"_EXACT": 0, "_CLUSTER": 25, "_VISITED": 4}.items():
        monkeypatch.setattr(neighbours, constant, size)
    some = found(rows)
    assert every.rows[:2].tolist() == some.rows[:2].tolist() == [[7, 40], [20, 50]]
    assert every.evidence[:2] == pytest.approx(some.evidence[:2], abs=1e-5)
    assert (some.evidence >= 0).all()
    positive = every.evidence > 0
    assert every.rows[positive].tolist() == some.rows[: positive.sum()].tolist()


def test_rows_of_a_group_are_left_out_and_two_rows_are_enough() -> None:
    anchors, positives = drawn(50), drawn(50, 1)
    anchors[9] = anchors[4]
    groups = torch.arange(50)
    groups[9] = 4
    assert [4, 9] not in found(of(anchors, positives, groups=groups)).rows.tolist()
    assert found(of(drawn(2), drawn(2, 1))).rows.tolist() == [[0, 1]]
    together = found(of(drawn(3), drawn(3, 1), groups=torch.zeros(3, dtype=torch.long)))
    assert len(together.rows) == 0
    assert np.isfinite(found(of(torch.zeros(4, 8), torch.zeros(4, 8))).evidence).all()
