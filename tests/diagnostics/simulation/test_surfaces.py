"""Ratio and gradient norm against the formulas printed in the papers, as corrected."""

import csv
import io
import itertools
import math

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.core.terms import Terms
from isotrope.diagnostics import Angles, gradient_norm, ratio
from isotrope.diagnostics.simulation.averages import as_csv
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import (
    DCL,
    DCLW,
    MAT,
    MET,
    MPT,
    AlignUniform,
    ArcCon,
    BarlowTwins,
    DCLPlus,
    InfoNCE,
    Paradigm,
)
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Margin, Softmax

U, TAU = math.pi / 18, 0.05
ARCCON, MET_, MPT_ = ArcCon(margin=U, temperature=TAU), MET(margin=0.45), MPT(margin=0.23)
GRID = Angles()
P, Q = GRID.positive[:, None], GRID.negative[None, :]


def test_ratios_at_one_point() -> None:
    """Exact: sin(pi/6 + pi/18) / sin(pi/6), and d(pi/3) / d(pi/6)."""
    arc, met = ratio([ARCCON, MET_], Angles([math.pi / 6], [math.pi / 3]))
    assert arc.value.item() == pytest.approx(1.2856, abs=5e-5)
    assert met.value.item() == pytest.approx(1.9319, abs=5e-5)
    assert arc.value.item() == pytest.approx(math.sin(math.pi / 6 + U) / 0.5, abs=1e-12)
    assert met.value.item() == pytest.approx(0.5 / math.sin(math.pi / 12), abs=1e-12)


def test_ratios_on_the_grid_of_figure_4() -> None:
    arc, met = ratio([ARCCON, MET_])
    np.testing.assert_allclose(arc.value, np.broadcast_to(np.sin(P + U) / np.sin(P), (100, 100)))
    np.testing.assert_allclose(met.value, np.sin(Q / 2) / np.sin(P / 2))
    gd = 1 / (1 + np.exp((np.cos(P + U) - np.cos(Q)) / TAU) / 127)
    np.testing.assert_array_equal(arc.defined, (P <= Q) & (gd >= 0.01))
    np.testing.assert_array_equal(
        met.defined, (P <= Q) & (2 * (np.sin(Q / 2) - np.sin(P / 2)) < 0.45)
    )
    for found in (arc, met):
        within = found.value[found.defined]
        assert ((within >= 1) & (within <= 2)).mean() > 0.85, "mostly between 1 and 2 (sec. 3.1.3)"
        assert (found.error == 0).all()


def test_a_static_ratio_is_flat() -> None:
    (found,) = ratio([InfoNCE()])
    np.testing.assert_allclose(found.value, 1)


def infonce(k: int) -> np.ndarray:
    return 1 / (1 + np.exp((np.cos(P) - np.cos(Q)) / TAU) / k)


@pytest.mark.parametrize("k", [1, 64, 300])
def test_norms_of_infonce(k: int) -> None:
    """Nie et al. 2023, eq. 7 and 16, with all negatives at one angle."""
    angles = Angles(negatives=k)
    (alignment,) = gradient_norm([InfoNCE(temperature=TAU)], angles)
    np.testing.assert_allclose(alignment.value, infonce(k) * np.sin(P) / TAU, rtol=1e-9)
    (uniformity,) = gradient_norm([InfoNCE(temperature=TAU)], angles, part="uniformity")
    # sin(pi) is 1e-16, of which no digit is right
    np.testing.assert_allclose(
        uniformity.value, infonce(k) * np.sin(Q) / (TAU * k), rtol=1e-9, atol=1e-15
    )


def test_norms_of_infonce_tend_to_those_of_dcl() -> None:
    """Nie et al. 2023, eq. 9: sin(theta_ii') / tau, whatever the negatives do; figure 2a."""
    angles = [Angles(negatives=k) for k in (4, 64, 512, 4096)]
    (dcl,) = gradient_norm([DCL(temperature=TAU)])
    np.testing.assert_allclose(dcl.value, np.broadcast_to(np.sin(P) / TAU, (100, 100)))
    infonces = [gradient_norm([InfoNCE(temperature=TAU)], a)[0].value for a in angles]
    short = [1 - value / dcl.value for value in infonces]
    for fewer, more in itertools.pairwise(short):
        assert (more <= fewer).all()
    means = [s.mean() for s in short]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.6
    (far,) = gradient_norm(
        [InfoNCE(temperature=TAU)], Angles([math.pi / 3], [math.pi / 2], negatives=2**22)
    )
    # the shortfall is 1 / (1 + k e^{-(cos pos - cos neg)/tau}), about e^10 / k
    assert 1 - far.value.item() * TAU / math.sin(math.pi / 3) == pytest.approx(
        math.exp(10) / 2**22, rel=0.01
    )


def test_norms_of_the_triplet_losses() -> None:
    """Nie et al. 2023, eq. 20 and 21, the gap the right way round; cos(theta/2) of a distance."""
    mpt, met = gradient_norm([MPT_, MET_])
    near = np.cos(P) - np.cos(Q) < 0.23
    np.testing.assert_allclose(mpt.value, near * np.sin(P))
    close = 2 * (np.sin(Q / 2) - np.sin(P / 2)) < 0.45
    np.testing.assert_allclose(met.value, close * np.cos(P / 2))
    mpt, met = gradient_norm([MPT_, MET_], part="uniformity")
    np.testing.assert_allclose(mpt.value, near * np.sin(Q), atol=1e-15)
    np.testing.assert_allclose(met.value, close * np.cos(Q / 2), atol=1e-15)
    printed = np.cos(P) + np.cos(Q) < 0.23
    assert (printed * np.sin(Q) != mpt.value).mean() > 0.2, "eq. 20 as printed adds them"


def test_norms_of_dcl_and_its_truncation() -> None:
    """Nie et al. 2023, eq. 11, 18 and 19: active while log k + (cos neg - cos pos)/tau > 0."""
    k, tau = 64, 0.17
    angles = Angles(negatives=k)
    active = np.log(k) + (np.cos(Q) - np.cos(P)) / tau > 0
    assert 0.3 < active.mean() < 0.7
    # eq. 11 prints sin theta_ij'; the positive is at theta_ii'
    (found,) = gradient_norm([DCLPlus(temperature=tau)], angles)
    np.testing.assert_allclose(found.value, active * np.sin(P) / tau)
    for objective, on in ((DCL(temperature=tau), 1), (DCLPlus(temperature=tau), active)):
        (found,) = gradient_norm([objective], angles, part="uniformity")
        expected = np.broadcast_to(on * np.sin(Q) / (tau * k), (100, 100))
        np.testing.assert_allclose(found.value, expected, atol=1e-15)


def test_norms_of_mat() -> None:
    """Nie et al. 2023, eq. 22: 1 while the nearest angle exceeds the positive's by less than m."""
    m = 0.151 * np.pi  # at .15 pi some cells of the grid lie on the edge itself
    for part in ("alignment", "uniformity"):
        (found,) = gradient_norm([MAT(margin=m)], part=part)
        inside = (Q < 3.13) & (P < 3.13)  # an angle within .01 of pi is clamped
        expected = (m > Q - P) * inside
        np.testing.assert_allclose(found.value, expected)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
def test_norms_of_alignment_and_uniformity(alpha: float) -> None:
    """Nie et al. 2023, eq. 8 (of one anchor: the loss is the mean of N) and 17."""
    k, t = 7, 6.0
    p, q = np.linspace(0.2, 1.5, 4), np.linspace(0.2, 3, 5)
    objective = AlignUniform(alpha=alpha, t=t, balance=0.25)
    (found,) = gradient_norm([objective], Angles(p, q, negatives=k))
    expected = 0.75 * alpha * (2 * np.sin(p / 2)) ** (alpha - 2) * np.sin(p) / (k + 1)
    np.testing.assert_allclose(found.value, np.repeat(expected[:, None], 5, axis=1))
    (found,) = gradient_norm([objective], Angles(p, q, negatives=k), part="uniformity")
    expected = 0.25 * 2 * t * np.sin(q) / (k * (k + 1))
    np.testing.assert_allclose(found.value, np.repeat(expected[None], 4, axis=0))


@pytest.mark.parametrize("objective", [DCLW(), DCLW().modify(ratio=1.5), AlignUniform()], ids=repr)
def test_no_number_depends_on_the_other_angles_of_the_grid(objective: Objective) -> None:
    p, q = [0.5, 1.2], [1.0, 2.0]
    for part in ("alignment", "uniformity"):
        (found,) = gradient_norm([objective], Angles(p, q, negatives=7), part=part)
        for i, j in itertools.product(range(2), repeat=2):
            (alone,) = gradient_norm([objective], Angles([p[i]], [q[j]], negatives=7), part=part)
            assert found.value[i, j] == pytest.approx(alone.value.item(), rel=1e-12)


def test_a_statistic_of_the_batch_sees_one_cell_at_a_time() -> None:
    shared = Paradigm(dissipation=Margin(margin=0.23), weight=Softmax(normaliser="batch"))
    p, q = [0.5, 1.0], [0.6, 0.9, 1.2]
    for part in ("alignment", "uniformity"):
        (grid,) = gradient_norm([shared], Angles(p, q, negatives=8), part=part)
        for i, mu_pos in enumerate(p):
            for j, mu_neg in enumerate(q):
                (cell,) = gradient_norm(
                    [shared], Angles([mu_pos], [mu_neg], negatives=8), part=part
                )
                assert grid.value[i, j] == cell.value.item()
    # 9 anchors share the 72 pairs, so each has a ninth of the weight
    (grid,) = gradient_norm([shared], Angles([1.0], [0.9], negatives=8))
    assert grid.value.item() == pytest.approx(math.sin(1.0) / 9)


class Coordinates(Objective, register=False):
    """Pulls every coordinate by itself, without asking for the embeddings."""

    def components(self, pairs: Pairs) -> Terms:
        weight = pairs.similarity()
        return Terms(pairs.positive, weight, pairs.positive[:, None].expand(-1, 2))


def test_what_is_no_function_of_the_angles() -> None:
    one = Angles([0.5], [0.7])
    for measure in (ratio, gradient_norm):
        with pytest.raises(InputError, match="computes with the embeddings themselves"):
            measure([BarlowTwins()], one)
        with pytest.raises(
            InputError, match="Coordinates pulls coordinates with different strengths"
        ):
            measure([Coordinates()], one)


def test_the_table_holds_every_cell() -> None:
    found = ratio([ARCCON, MET_], Angles([0.5, 2.0], [0.6, 0.9, 1.2]))
    lines = list(csv.DictReader(io.StringIO(as_csv(list(zip("ab", found, strict=True))))))
    assert len(lines) == 12
    assert [line["objective"] for line in lines] == ["a"] * 6 + ["b"] * 6
    line = lines[7]
    assert (line["mu_pos"], line["mu_neg"], line["standard_error"]) == ("0.5", "0.9", "0")
    assert float(line["value"]) == pytest.approx(found[1].value[0, 1], rel=1e-6)
    assert {line["defined"] for line in lines} == {"true", "false"}
