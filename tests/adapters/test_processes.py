"""Two processes train as one: DDP, FSDP and the Doctor, with texts of other lengths in each."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

pytest.importorskip("accelerate")

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from isotrope.adapters.doctor.doctor import Doctor
from isotrope.adapters.sentence_transformers import ObjectiveLoss
from tests.adapters.trainers import WORDS, scratch
from tests.two_processes import on_two

NAMES = ("infonce", "ntxent", "mpt")
SHARES = (slice(0, 5), slice(5, 8))
DOCTOR = ("dissipation", "hardest_share", "alignment")


def columns(rows: slice) -> list[list[str]]:
    """Anchors and positives; those of the second process are much longer."""
    lengths = [2, 3, 1, 2, 3, 14, 18, 12]
    return [
        [
            " ".join(WORDS[(i + k + side) % len(WORDS)] for k in range(length))
            for i, length in enumerate(lengths)
        ][rows]
        for side in range(2)
    ]


def model() -> SentenceTransformer:
    """Without dropout, so that two ways can be compared."""
    return scratch(max_length=32, width=16).eval().double()


def value(loss: torch.nn.Module, encoder: SentenceTransformer, rows: slice) -> Tensor:
    given: list[dict[str, Any]] = [encoder.preprocess(column) for column in columns(rows)]
    return loss(given, None)


def gradients(encoder: torch.nn.Module) -> dict[str, Tensor]:
    return {
        name: getattr(p.grad, "full_tensor", lambda p=p: p.grad)()
        for name, p in encoder.named_parameters()
        if p.grad is not None
    }


def watched(rows: slice, **how: bool) -> dict[str, float]:
    """What the Doctor reads in the loss of sentence-transformers."""
    doctor, encoder = Doctor(every=1), model()
    loss = value(MultipleNegativesRankingLoss(encoder, **how), encoder, rows)
    doctor.observe(loss)
    loss.backward()
    return {name: doctor.rows[-1][name] for name in DOCTOR}


def _rank(rank: int) -> dict[str, Any]:
    half = slice(4 * rank, 4 * rank + 4)  # their gather needs as many rows in each process
    found: dict[str, Any] = {"doctor": watched(half, gather_across_devices=True)}
    for name in NAMES:
        for kind in ("ddp", "fsdp"):
            encoder = model()
            loss = ObjectiveLoss(encoder, name, gather_across_devices=True)
            if kind == "fsdp":
                for layer in encoder[0].model.encoder.layer:
                    fully_shard(layer)
                fully_shard(encoder)
            else:
                loss.model = DistributedDataParallel(encoder, find_unused_parameters=True)
            value(loss, encoder, SHARES[rank]).backward()
            found[f"{kind} {name}"] = gradients(encoder)
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return on_two(_rank, tmp_path_factory.mktemp("processes"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_two_processes_is_that_of_one(
    two: list[dict[str, Any]], kind: str, name: str
) -> None:
    encoder = model()
    value(ObjectiveLoss(encoder, name), encoder, slice(0, 8)).backward()
    expected = gradients(encoder)
    for found in two:
        given = found[f"{kind} {name}"]
        assert given.keys() == expected.keys()
        for key, gradient in expected.items():
            torch.testing.assert_close(given[key], gradient, rtol=1e-7, atol=1e-10)


@pytest.mark.slow
def test_the_doctor_reads_gathered_negatives(two: list[dict[str, Any]]) -> None:
    """Each process reads its own anchors against the positives of all."""
    whole = watched(slice(0, 8))
    first, second = (found["doctor"] for found in two)
    for name in DOCTOR:
        assert (first[name] + second[name]) / 2 == pytest.approx(whole[name], rel=1e-6), name
