"""What whitening uncovers: a direction that all embeddings share, or nothing."""

import zlib

import numpy as np
import pytest

from isotrope.evaluation.uncover import uncover, uncover_records
from isotrope.measures.judgement import DevEvaluation


class Drawn:
    """Embeddings of pairs that belong together, beside a direction that all of them share."""

    def __init__(self, shared: float, loud: float) -> None:
        self.shared, self.loud = shared, loud

    def encode(self, texts):
        rows = []
        for text in texts:
            draw = np.random.default_rng(int(text.split()[1]))
            row = draw.normal(size=8)
            own = np.random.default_rng(zlib.crc32(text.encode())).normal(size=8)
            row = row + 0.3 * own
            row[0] += self.shared
            row[1:4] += self.loud * own[1:4]  # says nothing of the pair
            rows.append(row)
        return np.array(rows, dtype=np.float32)


RECORDS = [(f"question {i}", f"answer {i}") for i in range(600)]


@pytest.mark.parametrize(
    ("shared", "loud", "kind"), [(0.0, 0.0, "trained"), (0.0, 1.0, "disturbed"), (0.0, 12.0, "raw")]
)
def test_three_kinds_of_encoders(shared: float, loud: float, kind: str) -> None:
    found = uncover_records(Drawn(shared, loud), RECORDS, "pairs")
    assert found.kind == kind
    assert found.raw is not None
    assert found.whitened is not None
    assert found.low <= found.whitened - found.raw <= found.high
    assert found.score == "MRR@10 of 200 queries"
    assert found.texts == 800


def test_a_score_near_zero_shows_nothing() -> None:
    class Noise:
        def encode(self, texts):
            return np.array(
                [np.random.default_rng(zlib.crc32(t.encode())).normal(size=8) for t in texts]
            )

    found = uncover_records(Noise(), RECORDS, "pairs")
    assert found.kind == "unknown"
    assert "too low to show anything" in found.sentence


@pytest.mark.parametrize(("scores", "kind"), [((50.0, 5.0), "trained"), ((5.0, 4.0), "unknown")])
def test_a_score_is_too_low_only_without_whitening_too(
    scores: tuple[float, float], kind: str
) -> None:
    """Whitening that ruins a good score shows that the encoder was trained."""
    left = iter(scores)
    found = uncover(
        Drawn(0, 0),
        [text for record in RECORDS for text in record],
        name="score",
        score=lambda _: DevEvaluation(value := next(left), np.full(99, value / 100)),
        left_out="",
    )
    assert (found.raw, found.whitened) == scores
    assert found.kind == kind


def test_a_message_on_few_texts_says_which_were_left_out() -> None:
    def refused(_: object) -> DevEvaluation:
        raise AssertionError

    texts = ["text 1", "text 2"]
    found = uncover(Drawn(0, 0), texts, name="", score=refused, left_out="of one's own")
    assert "Found 2; of one's own, and" in found.sentence
    assert "third" not in found.sentence


def test_single_texts_are_not_scored() -> None:
    """Of halves of sentences, a disturbed encoder looks trained."""
    found = uncover_records(
        Drawn(0, 12), [(f"text {i} of six words",) for i in range(99)], "dropout"
    )
    assert found.kind == "unknown"
    assert found.raw is None
    assert "isotrope audit --dev" in found.sentence


def test_too_few_rows_are_not_measured() -> None:
    assert (
        "only a third is scored; 30 are too few"
        in uncover_records(Drawn(0, 0), RECORDS[:30], "pairs").sentence
    )
    few = uncover_records(Drawn(0, 0), RECORDS[:65], "pairs")
    assert few.kind == "trained"


def test_a_covariance_of_too_few_texts_is_not_measured() -> None:
    class Wide(Drawn):
        def encode(self, texts):
            return np.tile(super().encode(texts), (1, 40))

    found = uncover_records(Wide(0, 0), RECORDS[:90], "pairs")
    assert "whitening needs 640 texts that are not scored (2 for each dimension)" in found.sentence


def test_a_wide_encoder_reads_more_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isotrope.evaluation.uncover._TEXTS", 10)

    class Wide:
        def encode(self, texts):
            draws = (np.random.default_rng(zlib.crc32(text.encode())) for text in texts)
            return np.stack([draw.normal(size=160) for draw in draws])

    found = uncover_records(Wide(), RECORDS, "pairs")
    assert found.raw is not None
    assert found.texts == 2 * 2 * 160


def test_an_encoder_of_one_point_is_not_measured() -> None:
    class Point:
        def encode(self, texts):
            return np.ones((len(texts), 3), np.float32)

    found = uncover_records(Point(), RECORDS[:90], "pairs")
    assert "gives 120 different texts the same embedding" in found.sentence
