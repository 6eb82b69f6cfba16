import math
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from isotrope.core.errors import InputError
from isotrope.data.text.labelled import Features, LabelledSplit, LabelledText, load_labelled
from isotrope.evaluation.labelled import text_features
from isotrope.evaluation.linear_probe import Probe, _scale, linear_probe
from isotrope.evaluation.nearest import knn

from .conftest import Table
from .test_knn import clouds

TRAIN, TEST = clouds(600, 0), clouds(200, 1)
QUICK = Probe(epochs=10)


def standard(x):
    mean, std = TRAIN.vectors.astype(float).mean(axis=0), TRAIN.vectors.astype(float).std(axis=0)
    return (x.vectors - mean) / std / math.sqrt(x.vectors.shape[1])


class TestSGD:
    def test_long_enough_it_comes_to_the_minimum(self):
        """With a penalty the minimum is one point, and that of scikit-learn."""
        peer = LogisticRegression(C=1 / (600 * 0.02), tol=1e-9, max_iter=5000)
        peer.fit(standard(TRAIN), TRAIN.labels)
        probe = Probe(epochs=400, batch_size=600, weight_decay=0.02, learning_rate=2)
        found = linear_probe(TRAIN, TEST, probe)
        right = peer.predict(standard(TEST)) == TEST.labels
        assert found.items["linear_top1"].tolist() == right.tolist()
        order = np.argsort(-peer.decision_function(standard(TEST)), axis=1)[:, :5]
        five = (order == np.asarray(TEST.labels)[:, None]).any(axis=1)
        assert found.items["linear_top5"].tolist() == five.tolist()

    def test_the_seed_decides(self):
        found = [linear_probe(TRAIN, TEST, Probe(epochs=3, seed=seed)) for seed in (5, 5, 6)]
        assert found[0].details == found[1].details
        assert found[0].provenance["seed"] == 5
        one, other = (f.items["linear_top1"] for f in found[1:])
        assert (
            found[0].details["linear"]["train_top1"] != found[2].details["linear"]["train_top1"]
            or (one != other).any()
        )

    def test_memory_maps_are_the_array(self, tmp_path):
        np.save(tmp_path / "x.npy", TRAIN.vectors)
        mapped = Features(np.load(tmp_path / "x.npy", mmap_mode="r"), TRAIN.labels)
        assert linear_probe(mapped, TEST, QUICK).details == linear_probe(TRAIN, TEST, QUICK).details

    def test_memory_does_not_grow_with_the_features(self, tmp_path):
        rows = np.random.default_rng(0).normal(size=(40_000, 64))
        np.save(tmp_path / "x.npy", rows)
        del rows
        mapped = Features(np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(40_000) % 2)
        linear_probe(TRAIN, TEST, Probe(epochs=1))  # torch loads modules at the first use
        tracemalloc.start()
        linear_probe(mapped, mapped, Probe(epochs=1))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # a few blocks of 8,192 rows; a copy of the features would be 20 MB
        assert peak < 0.75 * 40_000 * 64 * 8

    def test_a_step_by_hand(self):
        """One epoch of one batch: W = lr/n X^T (onehot - 1/C), whose logits rank the rows."""
        found = linear_probe(TRAIN, TEST, Probe(epochs=1, batch_size=600))
        error = np.eye(8)[TRAIN.labels] - 1 / 8
        logits = standard(TEST) @ (standard(TRAIN).T @ error) + error.sum(axis=0)
        expected = logits.argmax(axis=1) == TEST.labels
        assert found.items["linear_top1"].tolist() == expected.tolist()

    def test_momentum_and_schedule_by_hand(self):
        """Four steps of the whole part, as torch's SGD defines momentum, lr (1 + cos(pi s/4))/2."""
        found = linear_probe(TRAIN, TEST, Probe(epochs=4, batch_size=600, learning_rate=2))
        x = np.column_stack([standard(TRAIN), np.ones(600)])
        weight, velocity = np.zeros((7, 8)), np.zeros((7, 8))
        for step in range(4):
            mass = np.exp(x @ weight)
            error = mass / mass.sum(axis=1, keepdims=True) - np.eye(8)[TRAIN.labels]
            velocity = 0.9 * velocity + x.T @ error / 600
            weight = weight - 2 * (1 + math.cos(math.pi * step / 4)) / 2 * velocity
        logits = np.column_stack([standard(TEST), np.ones(200)]) @ weight
        expected = logits.argmax(axis=1) == TEST.labels
        assert found.items["linear_top1"].tolist() == expected.tolist()

    def test_divergence(self):
        probe = Probe(learning_rate=3e38, epochs=50)
        with pytest.raises(InputError, match=r"lower the learning rate .* at 3e\+38, it diverges"):
            linear_probe(TRAIN, TEST, probe)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_without_gradients(self, mode):
        with mode():
            found = linear_probe(TRAIN, TEST, QUICK)
        assert found.details == linear_probe(TRAIN, TEST, QUICK).details


class TestScaling:
    def test_dimensions_of_any_size_and_place_are_one(self):
        """Standardising undoes what is done to single dimensions; nothing else does."""
        moved = [
            Features(x.vectors.astype(float) * [1, 1e3, 1e-2, 5, 1, 1] + [0, 1e4, 1, 0, -3, 0], y)
            for x, y in ((TRAIN, TRAIN.labels), (TEST, TEST.labels))
        ]
        expected = linear_probe(TRAIN, TEST, QUICK).items["linear_top1"]
        found = linear_probe(*moved, QUICK).items["linear_top1"]
        assert (found == expected).mean() > 0.99

    @pytest.mark.parametrize("noise", [0.0, 1e-33, 1e-9])
    def test_a_dead_dimension_is_not_blown_up(self, noise):
        rng = np.random.default_rng(0)
        dead = [
            Features(np.column_stack([x.vectors, 3 + noise * rng.normal(size=len(x.vectors))]), y)
            for x, y in ((TRAIN, TRAIN.labels), (TEST, TEST.labels))
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            linear_probe(*dead, QUICK)
        # one dimension more, which becomes 0
        factor = _scale(dead[0].vectors)[1]
        assert factor[-1] == 0
        np.testing.assert_allclose(
            factor[:-1] * math.sqrt(7 / 6), _scale(TRAIN.vectors)[1], rtol=1e-6
        )


class TestResult:
    def test_it_says_what_was_done(self):
        found = linear_probe(TRAIN, TEST, QUICK, name="clouds")
        assert (found.kind, found.name) == ("linear", "clouds")
        details = found.details["linear"]
        assert (details["train"], details["test"], details["classes"]) == (600, 200, 8)
        assert (details["epochs"], details["weight_decay"]) == (10, 0)
        for key in ("top1", "top5"):
            value = details[key]
            assert value == found.metrics[f"linear_{key}"] == found.items[f"linear_{key}"].mean()

    def test_five_classes_have_no_top_5(self):
        found = linear_probe(clouds(50, 0, classes=5), clouds(20, 1, classes=5), QUICK)
        assert found.metrics["linear_top5"] is None

    def test_a_class_that_training_never_saw_is_wrong(self):
        found = linear_probe(TRAIN, Features(TEST.vectors, np.full(200, 77)), QUICK)
        assert (found.metrics["linear_top1"], found.details["linear"]["unseen"]) == (0, 200)

    def test_texts(self):
        table = Table({"a": [1, 0], "b": [0, 1], "c": [1, 0.1], "d": [1, 0.2]})
        split = LabelledSplit(
            LabelledText(["a", "b"], ["x", "y"]), LabelledText(["c", "d", "b"], ["x", "y", "y"])
        )
        found = linear_probe(*text_features(table, split), QUICK)
        assert found.metrics["linear_top1"] == pytest.approx(2 / 3)
        assert found.details["linear"]["repeated"] == 1


@pytest.mark.parametrize("settings", [{"epochs": 0}, {"batch_size": 0}])
def test_no_steps(settings):
    with pytest.raises(InputError, match="at least one epoch and rows in each batch"):
        Probe(**settings)


def test_rows_without_labels():
    with pytest.raises(InputError, match="one label per row; 600 rows have 599 labels"):
        Features(TRAIN.vectors, TRAIN.labels[1:])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_features_that_are_not_finite(value):
    rows = TRAIN.vectors.astype(float)
    rows[3, 2] = value
    with pytest.raises(InputError, match="not finite"):
        linear_probe(Features(rows, TRAIN.labels), TEST)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_test_features_that_are_not_finite(value):
    rows = TEST.vectors.astype(float)
    rows[-1, 2] = value
    with pytest.raises(InputError, match=r"encode the test examples again, .* NaN or infinite"):
        linear_probe(TRAIN, Features(rows, TEST.labels), Probe(epochs=1))


def test_many_blocks_of_rows_are_one(monkeypatch):
    expected = linear_probe(TRAIN, TEST, QUICK)
    monkeypatch.setattr("isotrope.evaluation.linear_probe._ROWS", 7)
    found = linear_probe(TRAIN, TEST, QUICK)
    assert found.details == expected.details
    assert found.items["linear_top1"].tolist() == expected.items["linear_top1"].tolist()


@pytest.mark.slow
def test_questions_of_trec(shared_data, minilm):
    """Word counts with logistic regression reach 0.888 here; sentence encoders about 0.9.

    Neighbours by subject are not neighbours by kind of question: far from what a probe reads.
    """
    data = load_labelled(shared_data / "transfer" / "trec")
    train, test = text_features(minilm, data)
    assert 0.87 < linear_probe(train, test).metrics["linear_top1"] < 0.92
    found = knn(train, test)
    assert 0.70 < found.metrics["knn_top1"] < 0.85
    assert found.details["knn"]["test"] == 500
    assert found.details["knn"]["repeated"] > 0
