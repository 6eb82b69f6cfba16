"""SimCLR and BYOL in two dimensions: real training on digits, short."""

import dataclasses
import math

import pytest
import torch

from isotrope.core import InputError
from papers.draganov2024.latent import (
    MEASURES,
    Cell,
    LatentSnapshot,
    byol_cells,
    latent,
    simclr_cells,
)

QUICK = {"epochs": 2, "limit": 260}  # two batches an epoch


def test_every_cell_trains_and_is_looked_at() -> None:
    cells = simclr_cells() | byol_cells()
    runs = latent(cells, **QUICK)
    assert [*runs] == [*cells]
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
    cell = {"one": Cell("simclr", "dcl", {"temperature": "0.5"})}
    one, two, other = (latent(cell, **QUICK, seed=seed)["one"] for seed in (0, 0, 1))
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.anchors, b.anchors)
    assert not torch.equal(one[0].anchors, other[0].anchors)


def test_a_look_changes_nothing() -> None:
    """A longer run passes through the weights of a shorter one only if the rates are the same, so
    the batch norms' statistics are what is compared: looks forward on a copy."""
    from isotrope.data import load_images
    from papers.draganov2024 import latent as module

    images = load_images("digits", limit=260)
    method = module._method(byol_cells()["BYOL"], images, 1, 0)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    look = module._look(method, module._fixed_crops(method, images, 0), 0)
    assert look.epoch == 0
    for name, value in method.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("cell", "options", "says"),
    [
        (Cell("simclr", "dcl"), {"epochs": 0}, "training takes 1 or more epochs; found 0"),
        (Cell("simclr", "dcl"), {"seed": -1}, "the seed must be 0 or more; found -1"),
        (Cell("simclr", "dcl"), {"seed": 2**63}, "the seed must be below 2.63; found 9223"),
        (Cell("simclr", "dlc"), {}, "unknown objective 'dlc'"),
        (Cell("simclr", "dcl", {"temprature": "1"}), {}, "has no setting 'temprature'"),
        (Cell("simkler", "dcl"), {}, "simkler"),
        (Cell("simclr", "dcl", cut=0.0), {}, "cut-constant"),
    ],
    ids=str,
)
def test_bad_input(cell: Cell, options: dict[str, int], says: str) -> None:
    with pytest.raises(InputError, match=says):
        latent({"one": cell}, **{"limit": 10, "epochs": 1, **options})


def test_cells_are_one_thing_apart() -> None:
    for cells in (simclr_cells(), byol_cells()):
        plain, *others = cells.values()
        for other in others:
            changed = [
                field.name
                for field in dataclasses.fields(Cell)
                if getattr(plain, field.name) != getattr(other, field.name)
            ]
            assert len(changed) == 1


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
