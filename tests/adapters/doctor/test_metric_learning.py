"""Losses of pytorch-metric-learning in plain loops, with miners and at their own settings."""

from typing import Any

import pytest
import torch

import isotrope

losses = pytest.importorskip("pytorch_metric_learning.losses")
miners = pytest.importorskip("pytorch_metric_learning.miners")

MINERS = {
    "semihard": lambda: miners.TripletMarginMiner(type_of_triplets="semihard"),
    "hard": lambda: miners.TripletMarginMiner(type_of_triplets="hard"),
    "batch hard": miners.BatchHardMiner,
    "distances": miners.DistanceWeightedMiner,
}


def trained(loss: Any, miner: Any = None, *, copies: bool = False) -> isotrope.Doctor:
    """Train a small encoder on 16 labels of four rows, or on four labels of two for each text."""
    torch.manual_seed(0)
    texts, noise = torch.randn(32, 32), 0.3 if copies else 0.5
    encoder = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 24))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(30):
        some = torch.randperm(32)[: 8 if copies else 16]
        some = some.repeat(4 if copies else 1).repeat_interleave(2 if copies else 4)
        labels = torch.arange(64) // (2 if copies else 4)
        rows = encoder(texts[some] + noise * torch.randn(64, 32))
        value = loss(rows, labels) if miner is None else loss(rows, labels, miner(rows, labels))
        doctor.observe(value)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return doctor


@pytest.mark.parametrize("name", MINERS)
def test_rows_of_its_label_that_a_miner_leaves_out_are_no_copies(name: str) -> None:
    """A finished anchor pushes nothing, and its nearest rows have its label."""
    found = trained(losses.TripletMarginLoss(), MINERS[name]()).diagnose()
    assert found.verdict[0] == "healthy", found


@pytest.mark.parametrize(
    ("loss", "miner"),
    [("CircleLoss", None), ("MarginLoss", None), ("MarginLoss", "distances")]
    + [("ContrastiveLoss", name) for name in (None, *MINERS)],
)
def test_losses_with_margins_are_healthy_at_their_own_settings(
    loss: str, miner: str | None
) -> None:
    found = trained(getattr(losses, loss)(), MINERS[miner]() if miner else None).diagnose()
    assert found.verdict[0] in {"healthy", "not-examined"}, found


@pytest.mark.parametrize("name", ["hard", "batch hard", "distances"])
def test_copies_that_a_miner_picks_are_pushed(name: str) -> None:
    found = trained(losses.TripletMarginLoss(), MINERS[name](), copies=True).diagnose()
    assert "false-negatives" in found.verdict, found


def test_a_loop_names_no_argument_of_a_library_that_is_imported() -> None:
    """N-pairs has no temperature, and its similarities are divided by nothing."""
    (finding,) = trained(losses.NPairsLoss()).diagnose().findings
    assert finding.verdict == "negatives-not-hard"
    assert finding.change == "similarities divided by a temperature of 0.05 (now 1)"


@pytest.mark.parametrize("labels", [torch.zeros(8), torch.arange(8)])
def test_a_loss_without_negatives_or_positives_needs_other_batches(labels: torch.Tensor) -> None:
    """The loss is 0 and compares nothing, so its graph does not tell which are absent."""
    encoder = torch.nn.Linear(32, 24)
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(9):
        value = losses.NTXentLoss()(encoder(torch.randn(8, 32)), labels)
        doctor.observe(value)
        value.backward()
    (finding,) = doctor.diagnose(batch_size=8).findings
    assert finding.verdict == "not-examined"
    assert finding.detail.startswith("The loss is 0: ")
    assert finding.change.startswith("a batch of 64 rows (now 8); if rows have labels, put")
