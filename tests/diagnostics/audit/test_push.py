"""The push ledger: planted rows come first, and its numbers are the objective's own."""

import numpy as np
import pytest
import torch

from isotrope.core.views import Views
from isotrope.diagnostics.audit import neighbours
from isotrope.diagnostics.audit import push as subject
from isotrope.diagnostics.audit.push import ledger
from isotrope.objectives.infonce import InfoNCE
from isotrope.objectives.modified import ModifiedMHE
from isotrope.objectives.ntxent import NTXent
from isotrope.objectives.triplet import MPT
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.registry import build
from tests.diagnostics.audit.handmade import embedded, mutual, of

OBJECTIVES = [InfoNCE(), MPT(margin=0.9), NTXent(), ModifiedMHE()]


def planted(n: int = 200, pair: tuple[int, int] = (17, 120)):
    """Two rows whose targets are one text in two wordings; the second is no copy of the first."""
    plain = embedded(n)
    draw = torch.Generator().manual_seed(1)
    anchors, positives = plain.anchors.clone(), plain.positives.clone()
    for view in (anchors, positives):
        near = view[pair[0]] + 0.3 * torch.randn(view.shape[1], generator=draw) / 48**0.5
        view[pair[1]] = near
    return of(anchors, positives)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
def test_a_planted_pair_is_found_first(objective: Objective) -> None:
    found = mutual(ledger(planted(), objective, None))
    if isinstance(objective, MPT):  # pushes the hardest alone, and all of them alike
        assert [17, 120] in found.rows[found.push == 1].tolist()
        return
    assert found.rows[0].tolist() == [17, 120]
    assert (found.push[1:] < found.push[0] / 2).all()


def test_the_numbers_are_those_of_the_components_of_the_batch() -> None:
    rows = planted(60, (17, 40))
    double = of(rows.anchors.double(), rows.positives.double())
    objective = InfoNCE(temperature=0.1)
    book = ledger(double, objective, None, keep=59)
    both = []
    for views in (
        Views(double.anchors, double.positives),
        Views(double.positives, double.anchors),
    ):
        terms = objective.terms(views.anchors, views.positives)
        both.append(terms.dissipation[:, None] * terms.weight)
    np.testing.assert_allclose(
        book.row_force * book.unit, ((both[0] + both[1]) / 2).sum(dim=1), rtol=1e-12
    )
    assert book.unit == pytest.approx(10)
    i, j = mutual(book).rows[0]
    reciprocal = (both[0][i, j] * both[1][i, j] * both[0][j, i] * both[1][j, i]) ** 0.25
    assert mutual(book).push[0] * book.unit == pytest.approx(float(reciprocal), rel=1e-6)


@pytest.mark.parametrize("objective", [InfoNCE(), NTXent()], ids=lambda o: o.name)
def test_the_shares_of_all_pairs_add_up_to_one(objective: Objective) -> None:
    book = ledger(embedded(40), objective, None, keep=39)
    np.testing.assert_allclose(book.force.sum(axis=1), book.row_force, rtol=1e-5)
    assert mutual(book).share.sum() == pytest.approx(1, abs=1e-5)
    assert mutual(ledger(embedded(40), objective, None, keep=5)).share.sum() < 1


@pytest.mark.parametrize("objective", [InfoNCE(), ModifiedMHE()], ids=lambda o: o.name)
def test_the_order_of_the_rows_does_not_matter(objective: Objective) -> None:
    rows = planted()
    order = torch.randperm(200, generator=torch.Generator().manual_seed(3))
    found = mutual(ledger(rows, objective, None))
    other = mutual(ledger(of(rows.anchors[order], rows.positives[order]), objective, None))
    pairs = np.sort(order.numpy()[other.rows[:20]], axis=1)
    assert pairs.tolist() == found.rows[:20].tolist()
    np.testing.assert_allclose(other.push[:20], found.push[:20], rtol=1e-3)


@pytest.mark.parametrize("objective", [InfoNCE(), NTXent()], ids=lambda o: o.name)
def test_every_pair_of_rows_meets_once_in_blocks(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_ANCHORS", 30)
    monkeypatch.setattr(subject, "_COLUMNS", 70)
    monkeypatch.setattr(subject, "_SQUARE", 30)
    rows = planted()
    met = torch.zeros(200, 200)
    order = torch.randperm(200)
    for meetings in (subject._rectangles(order), subject._squares(order)):
        met.zero_()
        for anchors, columns, new in meetings:
            met[anchors[:, None], columns] += new.expand(len(anchors), -1).float()
        assert bool((met == 1).all())
    book = ledger(rows, objective, None, keep=8)
    found = mutual(book)
    assert found.rows[0].tolist() == [17, 120]
    assert all(len(set(row)) == len(row) for row in book.partners.tolist())


SEPARABLE = ["arccon", "dcl", "dclplus", "infonce", "mat", "met", "mpt", "paradigm"]
MIXING = ["mixcse", "mixedinfonce"]  # they mix the rows that were drawn


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", SEPARABLE)
def test_of_rows_that_meet_all_others_the_ledger_is_the_exact_one(
    name: str, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, objective = planted(60, (17, 40)), build(name)
    groups = torch.arange(60).clamp_max(50) if grouped else torch.arange(60)
    rows = of(rows.anchors.double(), rows.positives.double(), groups=groups)
    exact = ledger(rows, objective, None, keep=59)
    monkeypatch.setattr(neighbours, "_EXACT", 0)
    found = ledger(rows, objective, None, keep=59)
    assert found.unit == pytest.approx(exact.unit)
    np.testing.assert_allclose(found.push, exact.push, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.row_force, exact.row_force, rtol=1e-6)
    some = exact.push > 0
    if name not in ("mpt", "met", "mat"):  # of these equal pushes are in another order
        assert (found.partners == exact.partners)[some].all()
    assert mutual(found).rows[:9].tolist() == mutual(exact).rows[:9].tolist()


@pytest.mark.parametrize("name", [*SEPARABLE, *MIXING])
def test_of_many_rows_the_planted_pair_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, size in {"_EXACT": 0, "_CLUSTER": 30, "_VISITED": 3}.items():
        monkeypatch.setattr(neighbours, constant, size)
    monkeypatch.setattr(subject, "_DRAWN", 100)
    book = ledger(planted(600), build(name), None, keep=4)
    found = mutual(book)
    assert [17, 120] in found.rows[found.push == found.push[0]].tolist()
    assert all(len(set(row)) == len(row) for row in book.partners[book.push.min(axis=1) > 0])
    assert (book.partners != np.arange(600)[:, None]).all()


def test_rows_of_a_group_do_not_push_each_other() -> None:
    rows = planted()
    groups = torch.arange(200)
    groups[120] = 17
    found = mutual(ledger(of(rows.anchors, rows.positives, groups=groups), InfoNCE(), None))
    assert [17, 120] not in found.rows.tolist()


@pytest.mark.parametrize("exact", [0, 100])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
def test_rows_that_are_all_the_same_and_rows_of_zeros(
    objective: Objective, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "_EXACT", exact)
    monkeypatch.setattr(neighbours, "_CLUSTER", 2)  # most of them are empty
    same = torch.ones(6, 4)
    alone = ledger(of(same, same, groups=torch.zeros(6, dtype=torch.long)), objective, None)
    assert len(mutual(alone).rows) == 0
    assert (alone.partners == -1).all()
    pushed = mutual(ledger(of(same, same), objective, None))
    assert np.isfinite(pushed.push).all()
    nothing = mutual(ledger(of(torch.zeros(3, 4), torch.zeros(3, 4)), objective, None))
    assert np.isfinite(nothing.push).all()


@pytest.mark.parametrize("exact", [0, 30_000])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
def test_rows_that_share_a_text_are_as_rows_of_a_group(
    objective: Objective, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "_EXACT", exact)
    plain, owns = embedded(60, noise=1.5), torch.arange(60) // 3
    texts = torch.stack([torch.arange(60) + 100, owns], dim=1)
    texts[::2] = texts[::2].flip(1)  # the anchor of a row may be the positive of another
    groups = ledger(of(plain.anchors, plain.positives, groups=owns), objective, None)
    shared = ledger(of(plain.anchors, plain.positives, texts=texts), objective, None)
    for name in ("partners", "push", "force", "row_force", "unit"):
        np.testing.assert_allclose(getattr(shared, name), getattr(groups, name), rtol=1e-4)


def test_two_rows_are_enough() -> None:
    found = mutual(ledger(embedded(2), InfoNCE(), None))
    assert found.rows.tolist() == [[0, 1]]
    assert found.share.tolist() == pytest.approx([1])
