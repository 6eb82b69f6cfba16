import numpy as np
import pytest

from isotrope.evaluation.embed import WhitenedEncoder, whitening


def test_covariance_is_one_and_directions_without_variance_are_left_out():
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(500, 3)) @ draw.normal(size=(3, 5)) + 7.0  # of rank 3
    mean, matrix = whitening(rows)
    white = (rows - mean) @ matrix
    assert matrix.shape == (5, 3)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(np.cov(white, rowvar=False), np.eye(3), atol=1e-10)


def test_one_dimension_is_divided_by_its_deviation():
    mean, matrix = whitening(np.array([[1.0], [3.0]]))
    np.testing.assert_allclose((mean.item(), matrix.item()), (2, 1 / np.sqrt(2)))


def test_statistics_are_those_of_the_texts_that_are_given():
    class Letters:
        def encode(self, texts):
            return np.array([[text.count(c) for c in "abc"] for text in texts], dtype=np.float32)

    texts = ["a", "bb", "abc", "ccc", "acc"]
    white = WhitenedEncoder(Letters(), texts)
    np.testing.assert_allclose(np.cov(white.encode(texts), rowvar=False), np.eye(3), atol=1e-10)
    assert white.encode(["a"]).shape == (1, 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((1, 2)), "at least two embeddings; found 1"),
        (np.ones((4, 2)), "are equal"),
        (np.arange(4), r"a matrix of embeddings, n x d; found shape \(4,\)"),
        (np.array([[0, 1], [np.inf, 2]]), "with NaN or infinity"),
    ],
)
def test_what_cannot_be_whitened_is_refused(rows: np.ndarray, message: str):
    with pytest.raises(ValueError, match=message):
        whitening(rows)
