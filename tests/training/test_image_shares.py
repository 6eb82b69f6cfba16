"""Two processes train a method on images as one would: loss, gradients, and the state after it."""

import pytest
import torch

from isotrope.core.image_methods import METHODS
from tests.training.image_ranks import ImageCase, on_two, one_process

CASES = [
    *(ImageCase(name, n) for name in METHODS for n in (6, 7)),
    ImageCase("mocov2", options={"symmetric": False}),
    ImageCase("dino", options={"local_crops": 2, "batch_norm": True}),
    ImageCase("simclr", objective="infonce"),
    ImageCase("simclr", objective="miov3"),
    ImageCase("simclr", objective="infonce", caching=2, batch_norm=False),
    ImageCase("byol", caching=2, batch_norm=False),
]
NONE = torch.zeros(0)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return on_two(CASES, tmp_path_factory.mktemp("ranks"))


def close(found: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]) -> bool:
    assert found.keys() == truth.keys()
    a, b = (torch.cat([x.flatten().double() for x in d.values()]) for d in (found, truth))
    return float((a - b).norm() / b.norm()) < 1e-12


def known(measured: dict[str, float | None]) -> dict[str, float]:
    return {k: v for k, v in measured.items() if v is not None}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_processes_learn_what_one_would(two: dict, case: ImageCase) -> None:
    truth = one_process(case)
    for rank in range(2):
        found = two[rank][str(case)]
        assert found["loss"] == pytest.approx(truth["loss"], rel=1e-12)
        assert close(found["gradients"], truth["gradients"])
        assert close(found["state"], truth["state"])
        for rows in ("queue.rows", "queue.place"):  # float32, whatever the encoder is
            assert torch.allclose(found["queue"].get(rows, NONE), truth["queue"].get(rows, NONE))
        assert known(found["measured"]) == pytest.approx(known(truth["measured"]), rel=1e-9)


def test_the_crops_of_two_processes_are_those_of_one(two: dict) -> None:
    whole = one_process(CASES[0])["crops"]
    for view in range(2):
        parts = [two[rank][str(CASES[0])]["crops"][view] for rank in range(2)]
        assert torch.equal(torch.cat(parts), whole[view])


def test_one_process_alone_would_learn_something_else() -> None:
    """The counter-example: half of the batch, with its own statistics, has another gradient."""
    case = ImageCase("simclr")
    half, truth = one_process(case, rows=slice(0, 3)), one_process(case)
    assert not close(half["gradients"], truth["gradients"])


def test_what_each_method_keeps_is_compared(two: dict) -> None:
    state = two[0]["mocov2 n=6"]["queue"]
    assert state["queue.place"] == 12
    assert state["queue.rows"].shape == (16, 4)
    assert two[1]["dino n=6"]["state"]["middle"].abs().max() > 0.01
    assert any(k.startswith("target.module.0.model.1") for k in two[0]["byol n=6"]["state"])
