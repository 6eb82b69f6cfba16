"""Simulated components: the papers' numbers, both ways of drawing, errors, seeds, memory."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.core.terms import Terms
from isotrope.diagnostics import Angles, dissipation, hardest_share
from isotrope.diagnostics.simulation import angle_draws
from isotrope.diagnostics.simulation.angle_draws import Draws
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import MAT, MET, MPT, ArcCon, BarlowTwins, InfoNCE, Paradigm
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Margin

INFONCE = InfoNCE(temperature=0.05)
FOUR = (INFONCE, ArcCon(margin=math.pi / 18, temperature=0.05), MPT(margin=0.23), MET(margin=0.45))
SIXTH = math.pi / 6


class Crowd(Objective, register=False):
    """GD is the share of negatives within .4 of the positive: no function of row statistics."""

    def components(self, pairs: Pairs) -> Terms:
        near = pairs.similarity() > pairs.positive[:, None] - 0.4
        weight = torch.ones_like(pairs.similarity())
        return Terms(near.double().mean(dim=1), weight, weight.sum(dim=1))


class Idle(Objective, register=False):
    """Pushes nothing away."""

    def components(self, pairs: Pairs) -> Terms:
        weight = torch.zeros_like(pairs.similarity())
        return Terms(torch.ones_like(pairs.positive), weight, torch.ones_like(pairs.positive))


@pytest.mark.parametrize("common", [True, False])
def test_half_of_the_gradient_is_gone_where_the_papers_figures_say(common: bool) -> None:
    """Figures 2 and 10 of Li et al. 2024 at mu_pos = pi/6, to .01 rad."""
    angles = Angles(positive=[SIXTH], negative=np.linspace(0.05 * np.pi, np.pi, 100))
    found = dissipation(FOUR, angles, draws=Draws(common=common))
    crossings = [landscape.crossing(SIXTH) for landscape in found]
    assert crossings == pytest.approx([0.968, 1.096, 1.139, 1.27], abs=0.01)


@pytest.mark.parametrize("common", [True, False])
def test_without_spread_it_is_the_formula(common: bool) -> None:
    p, q = np.linspace(0.2, 1.5, 5), np.linspace(0.3, 3.1, 6)
    angles = Angles(p, q, spread_positive=0, spread_negative=0, negatives=7, batches=2)
    (found,) = dissipation([INFONCE], angles, draws=Draws(common=common))
    gap = (np.cos(q) - np.cos(p)[:, None]) / 0.05 + math.log(7)
    # drawn angles are float32, and a temperature of .05 makes 20 of 1
    np.testing.assert_allclose(found.value, 1 / (1 + np.exp(-gap)), atol=1e-5)
    assert found.error.max() < 1e-6
    assert found.defined.all()


def test_both_ways_of_drawing_agree_within_their_errors() -> None:
    angles = Angles(np.linspace(0.3, 1.5, 8), np.linspace(0.5, 2.5, 12), negatives=31, batches=400)
    together = dissipation([INFONCE, MPT()], angles, draws=Draws(common=True, seed=1))
    apart = dissipation([INFONCE, MPT()], angles, draws=Draws(common=False, seed=2))
    for one, two in zip(together, apart, strict=True):
        error = np.hypot(one.error, two.error)
        alive = error > 1e-3
        assert alive.sum() > 15
        score = ((one.value - two.value)[alive] / error[alive]).ravel()
        assert np.abs(score).max() < 4.5
        assert np.square(score).mean() < 2
        np.testing.assert_allclose(one.value[~alive], two.value[~alive], atol=0.01)


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.slow
def test_the_errors_are_what_other_seeds_differ_by(common: bool) -> None:
    angles = Angles([SIXTH], [0.968, 1.1], negatives=31, batches=50)
    runs = [
        dissipation([INFONCE], angles, draws=Draws(seed=s, common=common))[0] for s in range(200)
    ]
    spread = np.std([run.value for run in runs], axis=0, ddof=1)
    claimed = np.mean([run.error for run in runs], axis=0)
    # a standard deviation of 200 values is known to 5 %
    np.testing.assert_allclose(claimed, spread, rtol=0.2)


@pytest.mark.parametrize("common", [True, False])
def test_the_seed_decides_and_threads_do_not(common: bool) -> None:
    angles = Angles([0.5, 0.6, 0.7], [0.8, 1.0], negatives=15, batches=40)

    def run(seed: int) -> np.ndarray:
        return dissipation([INFONCE], angles, draws=Draws(seed=seed, common=common))[0].value

    first, other = run(0), run(1)
    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        again = run(0)
        assert torch.get_num_threads() == (2 if before == 1 else 1)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


def test_every_cell_has_draws_of_its_own_only_if_asked() -> None:
    """Two cells of the same means: equal with common draws, different with their own."""
    angles = Angles([0.5, 0.5], [0.9, 0.9], negatives=15, batches=40)
    (together,) = dissipation([INFONCE], angles)
    (apart,) = dissipation([INFONCE], angles, draws=Draws(common=False))
    assert len(set(together.value.ravel())) == 1
    assert len(set(apart.value.ravel())) == 4


@pytest.mark.parametrize("common", [True, False])
def test_memory_is_bounded_and_changes_nothing_but_the_draws(
    common: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    angles = Angles([0.5], [0.9], negatives=10, batches=3000)
    whole = dissipation([INFONCE], angles, draws=Draws(common=common))[0]
    monkeypatch.setattr(angle_draws, "_CHUNK", 1000)
    seen = [others.numel() for _, others in angle_draws._draws(angles, 0)]
    assert max(seen) == 1000
    assert sum(seen) == 30_000
    parts = dissipation([INFONCE], angles, draws=Draws(common=common))[0]
    assert parts.value != whole.value
    assert abs(parts.value - whole.value) < 4 * np.hypot(parts.error, whole.error)
    np.testing.assert_allclose(parts.error, whole.error, rtol=0.1)


def test_a_dissipation_of_the_whole_row_is_computed_from_the_whole_row() -> None:
    """Shortening the rows to their statistics would be fast, and wrong for this one."""
    angles = Angles([0.4, 0.5], [0.9, 1.0], spread_negative=0.3, negatives=31, batches=200)
    (together,) = dissipation([Crowd()], angles)
    (apart,) = dissipation([Crowd()], angles, draws=Draws(common=False))
    assert together.value.min() > 0.1
    assert together.value.max() < 0.9
    assert (np.abs(together.value - apart.value) < 4 * np.hypot(together.error, apart.error)).all()


def test_progress_adds_up_to_the_cells() -> None:
    angles = Angles([0.5, 0.6, 0.7], [0.8, 1.0], negatives=5, batches=4)
    for common in (True, False):
        told: list[float] = []
        dissipation([INFONCE], angles, draws=Draws(common=common, progress=told.append))
        assert sum(told) == pytest.approx(6)
        assert len(told) > 1


TAUS = (0.3, 0.1, 0.05, 0.03, 0.01, 0.005)


def test_the_hardest_negative_without_a_gate() -> None:
    """Figure 3 of Li et al. 2024 as the text has it: at tau = .1 the share stays under .07."""
    angles = Angles([0.5], np.linspace(0.05 * np.pi, np.pi, 25), batches=200)
    found = hardest_share([InfoNCE(temperature=t) for t in TAUS], angles)
    peaks = [landscape.value.max() for landscape in found]
    assert peaks == sorted(peaks)
    assert peaks[1] < 0.07
    assert peaks[-1] > 0.85
    # ungated, no curve ends at 1: the share falls again towards pi
    assert all(landscape.value[0, -1] < landscape.value.max() for landscape in found)


def test_the_gate_makes_the_printed_shape() -> None:
    angles = Angles([0.5], [0.5, 1.0, np.pi], batches=200)
    (gated,) = hardest_share([INFONCE], angles, gated=True)
    (free,) = hardest_share([INFONCE], angles)
    assert gated.value[0, 0] == pytest.approx(free.value[0, 0])
    assert gated.value[0, 2] == 1
    assert gated.error[0, 2] == 0
    assert free.value[0, 2] < 0.2
    assert gated.defined.all()


def test_the_share_of_equal_negatives_and_of_the_hardest_alone() -> None:
    flat = Angles([0.5], [0.7], spread_negative=0, negatives=8, batches=2)
    even, alone = hardest_share([INFONCE, Paradigm(weight="hardest")], flat)
    assert even.value.item() == pytest.approx(1 / 8)
    assert alone.value.item() == 1


def test_nothing_pushed_is_undefined_not_zero() -> None:
    (found,) = hardest_share([Idle()], Angles([0.5], [0.7], batches=2))
    assert not found.defined.any()


@pytest.mark.parametrize("objective", [MET(), MAT()])
def test_batches_without_a_push_do_not_count(objective: Objective) -> None:
    """Of 127 angles around pi/20 one is often below .01, where it is clamped."""
    (found,) = hardest_share([objective], Angles([0.5], [math.pi / 20, math.pi / 2], batches=50))
    assert found.value.tolist() == [[1, 1]]
    assert found.defined.all()


@pytest.mark.parametrize("measure", [dissipation, hardest_share])
@pytest.mark.parametrize("common", [True, False])
def test_embeddings_are_refused(measure, common: bool) -> None:
    threads = torch.get_num_threads()
    with pytest.raises(InputError, match="computes with the embeddings themselves"):
        measure([BarlowTwins()], Angles([0.5], [0.7], batches=2), draws=Draws(common=common))
    assert torch.get_num_threads() == threads


def test_a_composed_dissipation_needs_no_weights() -> None:
    """The weights of this one are of the positives among themselves: no angle to the anchor."""
    weighted = Paradigm(dissipation=Margin(margin=0.23), weight="softmax:0.05:positives")
    angles = Angles([SIXTH], [1.0, 1.2], batches=100)
    found, expected = dissipation([weighted, MPT(margin=0.23)], angles)
    np.testing.assert_array_equal(found.value, expected.value)


def test_an_objective_off_the_sphere_has_no_components() -> None:
    class Flat(Objective, register=False):
        space = "raw"

        def formula(self, pairs: Pairs) -> Tensor:
            return pairs.positive

    with pytest.raises(InputError, match=r"Flat has no gradient components: .* 'raw'"):
        dissipation([Flat()], Angles([0.5], [0.7], batches=2))


def test_a_part_has_no_components_of_its_own() -> None:
    with pytest.raises(InputError, match=r"no gradient components: use the whole objective"):
        dissipation([INFONCE.parts.repulsion], Angles([0.5], [0.7], batches=2))


def test_where_it_never_crosses() -> None:
    flat = Angles([0.5, 1.5], [0.2, 0.4], batches=10)
    (found,) = dissipation([INFONCE], flat)
    assert found.crossing(1.5) is None
    gone = Angles([0.1, 0.2], [2.0, 2.1], batches=10)
    (found,) = dissipation([INFONCE], gone)
    assert found.crossing(0.1) is None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"positive": []}, "give .positive. as a list of finite angles"),
        ({"negative": [math.nan]}, "give .negative. as a list of finite angles"),
        ({"negative": 0.5}, "give .negative. as a list of finite angles"),
        ({"spread_positive": -0.1}, "0 or more radians; found spread_positive=-0.1 and"),
        ({"spread_negative": math.nan}, "give standard deviations of 0 or more radians"),
        ({"negatives": 0}, "at least 1 negative and 2 batches; found negatives=0 and batches=1000"),
        ({"batches": 1}, "at least 1 negative and 2 batches; found negatives=127 and batches=1"),
    ],
    ids=str,
)
def test_distributions_that_are_none(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Angles(**wrong)
