"""What Li et al. 2024 measure of models: angles, shares of the hardest negative, dynamic ratios."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from isotrope import Views
from isotrope.core import InputError, unit
from isotrope.encoders import SentenceEncoder
from isotrope.objectives import MET, BarlowTwins, InfoNCE
from isotrope.paradigm.parts import MetricRatio
from papers.li2024.model_statistics import (
    angle_statistics,
    densities,
    dynamic_ratios,
    hardest_share,
    held_out,
)

TEXTS = ["a stone in the river", "rain", "a lantern on the bridge", "snow again", "bread", "cloud"]


def batches(count: int = 2, n: int = 9, d: int = 7) -> list[Views]:
    random = torch.Generator().manual_seed(0)
    drawn = torch.randn(count, 2, n, d, generator=random, dtype=torch.float64)
    return [Views(2 * x, x + 0.6 * noise) for x, noise in drawn]


def angles_of(views: Views) -> tuple[list[float], list[float]]:
    """By loops: with positives, and with negatives."""
    h, other = unit(views.anchors), unit(views.positives)
    cosines = [[float(a @ b) for b in other] for a in h]
    near = [math.acos(row[i]) for i, row in enumerate(cosines)]
    far = [math.acos(c) for i, row in enumerate(cosines) for j, c in enumerate(row) if j != i]
    return near, far


def test_moments_and_distances_are_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    found = angle_statistics(batches())
    both = [angles_of(views) for views in batches()]
    for name, side in (("positive", 0), ("negative", 1)):
        values = np.array([angle for one in both for angle in one[side]])
        seen = found[name]
        assert seen["count"] == len(values)
        assert seen["mean"] == pytest.approx(values.mean(), rel=1e-9)
        assert seen["std"] == pytest.approx(values.std(), rel=1e-9)
        assert seen["skew"] == pytest.approx(stats.skew(values), abs=1e-9)
        assert seen["kurtosis"] == pytest.approx(stats.kurtosis(values), abs=1e-9)
        normal = stats.norm(values.mean(), values.std()).cdf
        assert seen["ks"] == pytest.approx(stats.kstest(values, normal).statistic, rel=1e-9)


def test_the_ranges_are_the_papers() -> None:
    found = angle_statistics(batches())
    assert found["positive"]["in_range"]
    assert found["negative"]["in_range"]
    assert found["negative"]["spread"] == pytest.approx(found["negative"]["std"] / 0.10)
    x = torch.eye(4, dtype=torch.float64)
    same = angle_statistics([Views(x, x)])
    assert not same["positive"]["in_range"]  # an angle of 0 is under pi / 20
    assert (same["negative"]["mean"], same["negative"]["std"]) == (pytest.approx(math.pi / 2), 0)
    assert same["negative"]["kurtosis"] == same["negative"]["skew"] == 0


def test_densities_are_scipys_and_integrate_to_one() -> None:
    stats = pytest.importorskip("scipy.stats")
    found = densities(batches(), points=401)
    far = np.cos([angle for views in batches() for angle in angles_of(views)[1]])
    expected = stats.gaussian_kde(far, bw_method=len(far) ** -0.2)
    # scipy's covariance divides by n - 1
    scale = math.sqrt((len(far) - 1) / len(far))
    expected.set_bandwidth(len(far) ** -0.2 * scale)
    np.testing.assert_allclose(found["negative"], expected(found["cosine"].numpy()), rtol=1e-9)
    mass = float(torch.trapezoid(found["negative"], found["cosine"]))
    assert 0.97 < mass <= 1.0001  # a little lies beyond -1
    assert float(found["cosine"][found["positive"].argmax()]) > 0.5


def test_a_density_of_many_cosines_is_of_their_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = densities(batches(20, 24))
    monkeypatch.setattr("papers.li2024.model_statistics._KEPT", 4000)
    some = densities(batches(20, 24))
    assert float((whole["negative"] - some["negative"]).abs().max()) < 0.05 * float(
        whole["negative"].max()
    )


def test_angles_need_negatives() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="need a batch of two pairs or more"):
        angle_statistics([Views(x, x, groups=torch.zeros(2, dtype=torch.long))])


def shares(views: Views, temperature: float, margin: float | None) -> list[tuple[float, float]]:
    """By loops: the share in the weight and the projection of each anchor that counts."""
    h, other = unit(views.anchors), unit(views.positives)
    found = []
    for i in range(len(h)):
        s = h[i] @ other.T
        others = [j for j in range(len(h)) if j != i]
        n = max(others, key=lambda j: float(s[j]))
        if margin is not None and not float(s[i] - s[n]) < margin:
            continue
        e = {j: math.exp(float(s[j]) / temperature) for j in others}
        v = {j: e[j] * (other[j] - s[j] * h[i]) for j in others}
        total: Tensor = sum(v.values())  # type: ignore[assignment]
        projection = float(v[n] @ total / total.norm()) / float(total.norm())
        found.append((e[n] / sum(e.values()), projection))
    return found


@pytest.mark.parametrize("margin", [None, 0.3])
def test_shares_are_those_of_loops(margin: float | None) -> None:
    for temperature in (0.05, 1.0):
        looped = [pair for views in batches() for pair in shares(views, temperature, margin)]
        for k, kind in enumerate(("weight", "projection")):
            found = hardest_share(batches(), [temperature], margin=margin, kind=kind)  # type: ignore[arg-type]
            expected = sum(pair[k] for pair in looped) / len(looped)
            assert found[temperature] == pytest.approx(expected, rel=1e-9)


def test_shares_fall_with_the_temperature_and_may_be_of_nobody() -> None:
    found = list(hardest_share(batches()).values())
    assert found == sorted(found, reverse=True)  # type: ignore[type-var]
    assert found[0] > 0.8 > 0.2 > found[-1]  # type: ignore[operator]
    assert hardest_share(batches(), [0.1], margin=-2.0) == {0.1: None}


def test_dynamic_ratios_are_those_of_active_anchors() -> None:
    (views,) = batches(1, 40)
    objective = MET(margin=0.2)
    found = dynamic_ratios([views], {"met": objective})["met"]
    pairs = objective.compare(views)
    active = objective.components(pairs).dissipation > 0
    ratio = MetricRatio()(pairs)[active]
    assert found["active"] == int(active.sum()) < found["count"] == 40
    assert found["mean"] == pytest.approx(float(ratio.mean()), rel=1e-9)
    assert found["std"] == pytest.approx(float(ratio.std(correction=0)), rel=1e-9)
    assert found["above_one"] == pytest.approx(float((ratio > 1).double().mean()))


def test_all_registered_dynamic_ratios_are_there_and_no_others() -> None:
    found = dynamic_ratios(batches(1))
    assert {"arccon", "met", "mat", "mixcse"} <= found.keys()
    assert not {InfoNCE.name, BarlowTwins.name, "mpt", "dino"} & found.keys()
    x = 5 * torch.eye(4)  # positives at 0, negatives at pi/2: MET moves nobody
    nobody = dynamic_ratios([Views(x, x)], {"met": MET()})["met"]
    assert (nobody["mean"], nobody["active"], nobody["count"]) == (None, 0, 4)


def test_held_out_batches_have_dropout_and_leave_the_encoder_as_it_was() -> None:
    encoder = SentenceEncoder.scratch(TEXTS, max_length=16).eval()
    first, second = held_out(encoder, TEXTS, batch_size=3)
    assert not encoder.training
    assert first.anchors.shape == second.positives.shape == (3, encoder.dimension)
    assert not torch.equal(first.anchors, first.positives)
    again = held_out(encoder, TEXTS, batch_size=3)[1]
    assert torch.equal(again.anchors, second.anchors)
    near = torch.cosine_similarity(first.anchors, first.positives).min()
    assert near > 0.5
    with pytest.raises(InputError, match="batches of 128 cannot be made of 6 texts"):
        held_out(encoder, TEXTS)


def test_what_has_no_share_and_no_ratio() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    same, other = Views(x[:1].expand(4, 6), x[:1].expand(4, 6)), Views(x, x)
    assert hardest_share([same], [0.1], kind="projection") == {0.1: None}
    expected = hardest_share([other], [0.1], kind="projection")
    assert hardest_share([same, other], [0.1], kind="projection") == expected
    with pytest.raises(ValueError, match="the pull of BarlowTwins is a matrix"):
        dynamic_ratios([other], {"mine": BarlowTwins()})
