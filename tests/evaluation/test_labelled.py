import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.core.progress import showing
from isotrope.data.text.labelled import Features, LabelledSplit, LabelledText
from isotrope.evaluation.labelled import index_classes, label_in_top_k, text_features

from .conftest import Table


class TestClasses:
    @pytest.mark.parametrize("name", [str, int])
    def test_numbers_for_labels(self, name):
        train = Features(np.ones((4, 2)), [name(x) for x in (7, 3, 7, 5)])
        test = Features(np.ones((3, 2)), [name(x) for x in (5, 9, 3)])
        found = index_classes(train, test)
        assert found.names.tolist() == [name(3), name(5), name(7)]
        assert found.train.tolist() == [2, 0, 2, 1]
        assert found.test.tolist() == [1, -1, 0]

    def test_one_class(self):
        with pytest.raises(InputError, match="at least two classes"):
            index_classes(Features(np.ones((2, 2)), [0, 0]), Features(np.ones((1, 2)), [0]))


class TestHits:
    def test_against_a_stable_sort(self):
        rng = np.random.default_rng(0)
        scores = rng.integers(0, 4, size=(200, 9)).astype(float)  # ties all over
        labels = rng.integers(0, 9, size=200)
        order = np.argsort(-scores, axis=1, kind="stable")
        for k in (1, 2, 5, 9):
            expected = (order[:, :k] == labels[:, None]).any(axis=1)
            np.testing.assert_array_equal(label_in_top_k(scores, labels, k), expected)

    def test_what_is_never_among_them(self):
        scores = np.array([[1.0, 2, 9], [1, 2, -np.inf]])
        assert label_in_top_k(scores, np.array([-1, 2]), 3).tolist() == [False, False]


def test_features_of_texts():
    table = Table({"a": [1, 0], "b": [0, 1], "c": [1, 1]})
    data = LabelledSplit(LabelledText(["a", "b"], ["x", "y"]), LabelledText(["b", "c"], ["y", "x"]))
    with showing(show=True):
        train, test = text_features(table, data, batch_size=5)
    assert (train.vectors.tolist(), train.labels) == ([[1, 0], [0, 1]], ["x", "y"])
    assert (test.vectors.tolist(), test.labels) == ([[0, 1], [1, 1]], ["y", "x"])
    assert table.calls == [(["a", "b", "c"], 5, True)]
