"""SimCLR and BYOL in two dimensions: real training on digits, short."""

import dataclasses
import math

import pytest
import torch

from papers.measurements import latent as module
from papers.measurements.latent import RUNS, LatentSnapshot, trained

QUICK = {"epochs": 2, "limit": 260}  # two batches an epoch


def test_every_cell_trains_and_is_looked_at() -> None:
    runs = {name: trained(run, **QUICK) for name, run in RUNS.items()}
    for name, looks in runs.items():
        assert [look.epoch for look in looks] == [0, 1, 2]
        for look in looks:
            assert look.anchors.shape == look.positives.shape == (256, 2)
            assert torch.isfinite(look.anchors).all(), name
        assert not torch.equal(looks[0].anchors, looks[-1].anchors), "it trains"
    begin = {name: looks[0].measures()["norm"] for name, looks in runs.items()}
    # two linear layers, with biases that stay: at least smaller, at most by 3 or 9 for each
    assert begin["SimCLR"] / 9 < begin["SimCLR, cut 3"] < begin["SimCLR"]
    assert begin["BYOL"] / 81 < begin["BYOL, cut 9"] < begin["BYOL"]
    assert begin["SimCLR"] == begin["SimCLR, decay .05"]
    end = {name: looks[-1].measures()["norm"] for name, looks in runs.items()}
    assert end["SimCLR, decay .05"] < end["SimCLR"]


def test_the_seed_decides() -> None:
    one, two, other = (trained(RUNS["SimCLR"], **QUICK, seed=seed) for seed in (0, 0, 1))
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.anchors, b.anchors)
    assert not torch.equal(one[0].anchors, other[0].anchors)


def test_a_look_changes_nothing() -> None:
    """A longer run passes through the weights of a shorter one only if the rates are the same, so
    the batch norms' statistics are what is compared: looks forward on a copy."""
    from isotrope.data import load_images

    images = load_images("digits", limit=260)
    method = module._method(RUNS["BYOL"], images, 1, 0)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    look = module._look(method, module._fixed_crops(method, images, 0), 0)
    assert look.epoch == 0
    for name, value in method.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_runs_are_one_thing_apart() -> None:
    for name, run in RUNS.items():
        plain = dataclasses.asdict(RUNS[name.partition(",")[0]])
        changed = {k for k, v in dataclasses.asdict(run).items() if plain[k] != v}
        assert len(changed) == ("," in name)


def around(angles: list[float], length: float = 1.0) -> torch.Tensor:
    turned = torch.tensor(angles, dtype=torch.float64)
    return length * torch.stack([turned.cos(), turned.sin()], dim=1)


def test_numbers_of_pairs_at_known_angles() -> None:
    look = LatentSnapshot(
        3, around([0.0, 0.5, 1.0, 2.0], 2.5), around([0.3, 0.7, 3.0, 2.0 + 3.0], 9.0)
    )
    found = look.measures()
    assert found["norm"] == pytest.approx(2.5)
    assert found["angle"] == pytest.approx((0.3 + 0.2 + 2.0 + 3.0) / 4)
    assert found["opposite_halves"] == 0.5
    assert found["far_opposite"] == 0.25


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
