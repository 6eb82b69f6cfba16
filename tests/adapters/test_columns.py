"""The columns of a batch, embedded in chunks of texts of similar length."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

pytest.importorskip("accelerate")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

from isotrope.adapters.sentence_transformers import ObjectiveLoss
from isotrope.adapters.sentence_transformers.losses import embed_sorted
from tests.adapters.trainers import WORDS, scratch
from tests.two_processes import on_two


def uneven(count: int, seed: int, longest: int = 60) -> list[str]:
    """Texts of very different lengths."""
    rng = random.Random(seed)
    lengths = [longest if rng.random() < 0.2 else rng.randint(1, 9) for _ in range(count)]
    return [" ".join(rng.choices(WORDS, k=k)) for k in lengths]


def features(model: SentenceTransformer, *columns: list[str]) -> list[dict[str, Any]]:
    return [model.preprocess(column) for column in columns]


def counting(model: SentenceTransformer) -> list[int]:
    """Note the rows of each forward pass."""
    rows: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0]["input_ids"])))
    return rows


def gradient(loss: nn.Module, given: list[dict[str, Any]]) -> tuple[float, Tensor]:
    loss.zero_grad()
    value = loss([dict(one) for one in given], None)
    value.backward()
    return float(value.detach()), torch.cat(
        [p.grad.flatten() for p in loss.parameters() if p.grad is not None]
    )


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("side", ["right", "left"])
def test_value_and_gradient_are_those_of_a_pass_per_column(columns: int, side: str) -> None:
    """In float32, beside the loss of sentence-transformers that ours is then."""
    model = scratch(max_length=64).eval()
    model.tokenizer.padding_side = side
    given = features(model, *(uneven(24, seed) for seed in range(columns)))
    passes = counting(model)
    ours = gradient(ObjectiveLoss(model, "infonce", temperature=0.05), given)
    chunks = len(passes)
    theirs = gradient(losses.MultipleNegativesRankingLoss(model, scale=20.0), given)
    assert sum(passes[:chunks]) == 24 * columns
    assert chunks > 1 or side == "left"
    assert ours[0] == pytest.approx(theirs[0], rel=2e-6)
    assert (ours[1] - theirs[1]).norm() <= 2e-6 * theirs[1].norm()


def test_short_texts_are_not_padded_to_long_ones() -> None:
    model = scratch(max_length=64).eval()
    given = features(model, uneven(32, 0), uneven(32, 1))
    widths: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: widths.append(inputs[0]["attention_mask"]))
    embed_sorted(model, given)
    tokens = sum(mask.numel() for mask in widths)
    assert tokens < 0.7 * sum(column["attention_mask"].numel() for column in given)
    assert all(int(mask.sum(1).max()) == mask.shape[1] for mask in widths)


def test_a_prompt_that_is_not_pooled_is_the_same_for_all_rows() -> None:
    model = scratch(max_length=64).eval()
    model.set_pooling_include_prompt(False)
    given = [
        model.preprocess([f"river {text}" for text in uneven(12, seed)]) | {"prompt_length": 2}
        for seed in (0, 1)
    ]
    expected = [model(dict(column))["sentence_embedding"] for column in given]
    for ours, theirs in zip(embed_sorted(model, given), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_columns_that_are_no_list_of_rows_have_a_pass_each() -> None:
    model = scratch(max_length=64).eval()
    passes = counting(model)
    given = features(model, uneven(8, 0), uneven(8, 1))
    embed_sorted(model, [{**column, "task": str(i)} for i, column in enumerate(given)])
    assert passes == [8, 8]


def test_columns_may_have_different_numbers_of_rows() -> None:
    model = scratch(max_length=64).eval()
    given = features(model, uneven(8, 0), uneven(8, 1), uneven(3, 2))
    expected = [model(dict(column))["sentence_embedding"] for column in given]
    passes = counting(model)
    for ours, theirs in zip(embed_sorted(model, given), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    assert sum(passes) == 19


def test_inputs_of_a_row_that_are_not_tokens_follow_their_row() -> None:
    class Shifted(nn.Module):
        """An encoder with a second input: a vector of each row, which it adds."""

        def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            tokens = (inputs["input_ids"] * inputs["attention_mask"]).sum(1, keepdim=True)
            return {"sentence_embedding": tokens + inputs["shift"]}

    model = scratch(max_length=64)
    given = [
        column | {"shift": torch.randn(16, 3) * 1000}
        for column in features(model, uneven(16, 0), uneven(16, 1))
    ]
    expected = [Shifted()(column)["sentence_embedding"] for column in given]
    for ours, theirs in zip(embed_sorted(Shifted(), given), expected, strict=True):
        assert torch.equal(ours, theirs)


def _passes(rank: int, gather: bool, joined: bool) -> tuple[list[int], Tensor]:
    """Texts of one length here, of many there, in DDP, whose passes must be as many."""
    model = scratch(max_length=64).eval()
    columns = [[f"{' '.join(WORDS[:4])}"] * 8] * 2 if rank == 0 else [uneven(8, 3), uneven(8, 4)]
    given = features(model, *columns)
    if rank == 0 and not joined:
        given = [{**column, "task": str(i)} for i, column in enumerate(given)]
    passes = counting(model)
    loss = ObjectiveLoss(model, "infonce", gather_across_devices=gather)
    loss.model = DistributedDataParallel(model)  # type: ignore[assignment]
    value, found = gradient(loss, given)
    assert value > 0
    made = list(passes)
    if rank == 1 and not gather:  # an evaluation of one process does not wait for the other
        loss.model = model
        with torch.no_grad():
            loss([dict(one) for one in given], None)
    dist.barrier()
    return made, found


WAYS = {(True, True): 1, (True, False): 2, (False, True): 2, (False, False): 2}
"""The passes of each process, by ``gather``, and whether the columns of both can be joined."""


def _rank(rank: int) -> list[tuple[list[int], Tensor]]:
    return [_passes(rank, *way) for way in WAYS]


def test_every_process_makes_as_many_passes(tmp_path: Path) -> None:
    for passes, *ranks in zip(WAYS.values(), *on_two(_rank, tmp_path), strict=True):
        (first, one), (second, other) = ranks
        assert len(first) == len(second) == passes
        assert sum(first) == sum(second) == 16
        assert torch.equal(one, other)


def _two_losses(rank: int) -> Tensor:
    """The first process has pairs, the second scored pairs."""
    model = scratch(max_length=64).eval()
    given = features(model, uneven(8, rank), uneven(8, 2))
    wrapped: Any = DistributedDataParallel(model)
    loss = (losses.CoSENTLoss if rank else ObjectiveLoss)(wrapped, *[] if rank else ["infonce"])
    loss([dict(one) for one in given], torch.arange(8) / 8).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_another_process_may_have_another_loss(tmp_path: Path) -> None:
    """Several data sets, each with a loss of its own."""
    one, other = on_two(_two_losses, tmp_path)
    assert torch.equal(one, other)
