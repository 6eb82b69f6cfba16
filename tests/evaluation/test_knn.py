import tracemalloc

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from isotrope.core.errors import InputError
from isotrope.data.text.labelled import Features, LabelledSplit, LabelledText
from isotrope.evaluation.labelled import text_features
from isotrope.evaluation.nearest import knn

from .conftest import Table


def clouds(n, seed, classes=8, d=6):
    """Overlapping clouds around one centre for each class, of rows of any length."""
    centres = np.random.default_rng(99).normal(size=(classes, d))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, size=n)
    rows = centres[labels] + 0.8 * rng.normal(size=(n, d))
    return Features((rows * rng.uniform(0.5, 2, size=(n, 1))).astype(np.float32), labels)


TRAIN, TEST = clouds(300, 0), clouds(120, 1)


def cosines():
    units = [
        x.vectors.astype(float) / np.linalg.norm(x.vectors.astype(float), axis=1, keepdims=True)
        for x in (TEST, TRAIN)
    ]
    return units[0] @ units[1].T


def oracle(k, temperature):
    """By a sort of the whole matrix and a loop over the votes."""
    top1, top5 = [], []
    for row, truth in zip(cosines(), TEST.labels, strict=True):
        votes = {}
        for i in np.argsort(-row)[:k]:
            label = TRAIN.labels[i]
            votes[label] = votes.get(label, 0) + np.exp(row[i] / temperature)
        ranking = sorted(votes, key=lambda label: (-votes[label], label))
        top1.append(ranking[0] == truth)
        top5.append(truth in ranking[:5])
    return top1, top5


class TestVotes:
    @pytest.mark.parametrize("k", [1, 3, 20, 300])
    @pytest.mark.parametrize("temperature", [0.1, 0.02, 5.0])
    def test_the_weighted_vote(self, k, temperature):
        top1, top5 = oracle(k, temperature)
        found = knn(TRAIN, TEST, k=k, temperature=temperature)
        assert found.items["knn_top1"].tolist() == top1
        assert found.items["knn_top5"].tolist() == top5
        assert found.metrics["knn_top1"] == np.mean(top1)
        assert found.metrics["knn_top5"] == np.mean(top5)
        assert 0.2 < np.mean(top1) < 1

    @pytest.mark.parametrize("k", [1, 4, 25])
    def test_the_weighted_vote_is_that_of_sklearn(self, k):
        def weights(distances):
            return np.exp((1 - distances) / 0.1)

        peer = KNeighborsClassifier(k, metric="cosine", algorithm="brute", weights=weights)
        expected = peer.fit(TRAIN.vectors, TRAIN.labels).score(TEST.vectors, TEST.labels)
        assert knn(TRAIN, TEST, k=k).metrics["knn_top1"] == pytest.approx(expected)

    def test_the_nearest_decide_at_a_tiny_temperature(self):
        """exp(cosine/t) itself would overflow."""
        nearest = TRAIN.labels[cosines().argmax(axis=1)] == TEST.labels
        found = knn(TRAIN, TEST, k=50, temperature=1e-8)
        assert found.items["knn_top1"].tolist() == nearest.tolist()

    def test_the_order_of_equal_neighbours_and_of_equal_votes(self):
        train = Features(np.array([[1.0, 0]] * 4), ["b", "a", "a", "b"])
        test = Features(np.array([[2.0, 0.0]]), ["b"])
        assert knn(train, test, k=1).metrics["knn_top1"] == 1  # the first row
        assert knn(train, test, k=2).metrics["knn_top1"] == 0  # b and a: a by name
        assert knn(train, test, k=3).metrics["knn_top1"] == 0
        assert knn(train, test, k=4).metrics["knn_top1"] == 0

    def test_a_class_that_nobody_voted_for_is_not_among_the_five(self):
        train = Features(np.eye(7), list("abcdefg"))
        test = Features(np.eye(7)[:2], list("ab"))
        found = knn(train, test, k=1)
        assert found.metrics["knn_top5"] == 1
        wrong = knn(train, Features(np.eye(7)[:1], ["b"]), k=1)
        assert wrong.metrics["knn_top5"] == 0


class TestResult:
    def test_more_neighbours_than_rows(self):
        found = knn(TRAIN, TEST, k=10**12)
        assert found.metrics == knn(TRAIN, TEST, k=300).metrics
        assert found.details["knn"]["k"] == 300
        assert found.details["knn"]["k_asked"] == 10**12

    def test_it_says_what_was_done(self):
        found = knn(TRAIN, TEST, name="clouds")
        assert (found.kind, found.name) == ("knn", "clouds")
        assert [*found.metrics] == ["knn_top1", "knn_top5"]
        details = found.details["knn"]
        assert (details["k"], details["temperature"], details["classes"]) == (200, 0.1, 8)
        assert (details["train"], details["test"], details["unseen"]) == (300, 120, 0)
        for key in ("top1", "top5"):
            assert details[key] == found.metrics[f"knn_{key}"] == found.items[f"knn_{key}"].mean()

    def test_five_classes_have_no_top_5(self):
        found = knn(clouds(50, 0, classes=5), clouds(20, 1, classes=5))
        assert found.metrics["knn_top5"] is None
        assert found.details["knn"]["top5"] is None

    def test_a_class_that_training_never_saw_is_wrong(self):
        test = Features(TEST.vectors, np.full(120, 77))
        found = knn(TRAIN, test)
        assert (found.metrics["knn_top1"], found.metrics["knn_top5"]) == (0, 0)
        assert found.details["knn"]["unseen"] == 120

    def test_texts(self):
        table = Table({"a": [1, 0], "b": [0, 1], "c": [1, 0.1], "d": [1, 0.2]})
        split = LabelledSplit(
            LabelledText(["a", "b"], ["x", "y"]), LabelledText(["c", "d", "b"], ["x", "y", "y"])
        )
        found = knn(*text_features(table, split), k=1)
        assert found.metrics["knn_top1"] == pytest.approx(2 / 3)
        assert found.details["knn"]["repeated"] == 1


def test_a_memory_map_is_the_array(tmp_path):
    expected = knn(TRAIN, TEST, k=7)
    np.save(tmp_path / "x.npy", TRAIN.vectors)
    mapped = Features(np.load(tmp_path / "x.npy", mmap_mode="r"), TRAIN.labels)
    found = knn(mapped, TEST, k=7)
    assert found.metrics == expected.metrics
    for key, value in found.items.items():
        np.testing.assert_array_equal(value, expected.items[key])


def test_memory_does_not_grow_with_the_training_part():
    def peak(count):
        block = np.random.default_rng(0).normal(size=(2000, 32)).astype(np.float32)
        labels = np.arange(2000 * count) % 10
        train = Features(np.tile(block, (count, 1)), labels)
        test = Features(block[:300], labels[:300])
        tracemalloc.start()
        knn(train, test, k=20)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few, many = peak(4), peak(40)
    # of 72,000 more rows of 128 bytes nothing but their labels, several times while sorted
    assert many - few < 72_000 * 40
    assert many < 0.3 * 300 * 80_000 * 8  # all similarities


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "at least k = 1 and a temperature above 0; found k = 0"),
        ({"temperature": 0.0}, "found k = 200 and temperature 0.0"),
        ({"temperature": float("inf")}, "temperature inf"),
        ({"temperature": float("nan")}, "temperature nan"),
    ],
)
def test_settings_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        knn(TRAIN, TEST, **options)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite(value):
    """They would vote, and be voted on, with a cosine of 0."""
    train, test = (part.vectors.copy() for part in (TRAIN, TEST))
    train[-1, 0] = test[-1, 0] = value
    with pytest.raises(InputError, match=r"the training examples again, .* not finite"):
        knn(Features(train, TRAIN.labels), TEST)
    with pytest.raises(InputError, match=r"the test examples again, .* not finite"):
        knn(TRAIN, Features(test, TEST.labels))
