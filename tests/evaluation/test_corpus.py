import itertools
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.data.sources import record_line
from isotrope.evaluation import corpus as room
from isotrope.measures.alignment import alignment
from isotrope.measures.distance_gap import distance_gap, margin_gap
from isotrope.measures.effective_rank import effective_rank
from isotrope.measures.mean_cosine import mean_cosine
from isotrope.measures.uniformity import uniformity

from .conftest import Table

TEXTS = [f"text {i}" for i in range(40)]
PAIRS = [(f"text {i}", f"other {i}") for i in range(40)]


def corpus(encoder, data, **options):
    """Measure a file, or texts or pairs that are written to one."""
    if isinstance(data, Path):
        return room.corpus(encoder, data, **options)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.jsonl"
        rows = [(row,) if isinstance(row, str) else row for row in data]
        file.write_text("".join(map(record_line, rows)), encoding="utf-8")
        return room.corpus(encoder, file, **options)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    near = rng.normal(size=(40, 6)) + 1
    rows = {f"text {i}": row for i, row in enumerate(near)}
    return Table(rows | {f"other {i}": row + rng.normal(size=6) / 4 for i, row in enumerate(near)})


def rows(table, texts):
    return torch.from_numpy(table.encode(texts)).double()


@pytest.fixture(params=[7, 8192])
def block(request, monkeypatch):
    """In blocks that do not divide the number of texts, or whole."""
    monkeypatch.setattr(room, "_BLOCK", request.param)


class TestTexts:
    def test_all_measures_of_all_texts(self, table, block):
        x = rows(table, TEXTS)
        norms, std = x.norm(dim=1), x.std(dim=0, correction=0)
        found = corpus(table, TEXTS)
        assert found.metrics == {
            **dict.fromkeys(("alignment", "distance_gap", "margin_gap")),
            "norm_mean": pytest.approx(float(norms.mean())),
            "norm_std": pytest.approx(float(norms.std(correction=0))),
            "norm_min": pytest.approx(float(norms.min())),
            "norm_max": pytest.approx(float(norms.max())),
            "std_mean": pytest.approx(float(std.mean())),
            "std_min": pytest.approx(float(std.min())),
            "std_max": pytest.approx(float(std.max())),
            "effective_rank": pytest.approx(float(effective_rank(x))),
            "rankme": pytest.approx(float(effective_rank(x, centre=False))),
            "mean_cosine": pytest.approx(float(mean_cosine(x))),
            "uniformity": pytest.approx(float(uniformity(x))),
        }

    def test_it_says_what_was_done(self, table):
        found = corpus(table, TEXTS, sample=10, seed=3)
        assert (found.kind, found.name, found.items) == ("corpus", "table", {})
        assert found.provenance["seed"] == 3
        assert found.details == {
            "corpus": {
                **found.metrics,
                "texts": 40,
                "sampled": 10,
                "positives": None,
                "positive_pairs": 0,
                "pairs_compared": 0,
                "dimensions": 6,
                "seed": 3,
            }
        }

    def test_only_what_is_quadratic_is_sampled(self, table, block):
        found = [corpus(table, TEXTS, sample=10, seed=seed).metrics for seed in (0, 0, 1)]
        whole = corpus(table, TEXTS).metrics
        assert found[0] == found[1]
        assert found[0] == {**whole, "uniformity": found[0]["uniformity"]}
        assert found[0]["uniformity"] != whole["uniformity"]
        assert found[0]["uniformity"] != found[2]["uniformity"]

    def test_the_sample_is_of_the_texts(self, table, block):
        """Every text is drawn by some seed, whichever block it is in."""
        values = {float(uniformity(rows(table, pair))) for pair in itertools.combinations(TEXTS, 2)}
        found = {
            corpus(table, TEXTS, sample=2, seed=seed).metrics["uniformity"] for seed in range(9)
        }
        assert len(found) > 5
        for value in found:
            assert min(abs(value - v) for v in values) < 1e-9

    def test_a_file(self, table, tmp_path):
        (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n")
        assert corpus(table, tmp_path / "a.txt").details == corpus(table, TEXTS).details
        (tmp_path / "a.csv").write_text("n,words\n" + "".join(f"1,{t}\n" for t in TEXTS))
        with pytest.raises(InputError, match=r"found 'n', 'words'; put a header"):
            corpus(table, tmp_path / "a.csv")

    def test_options_are_passed_on(self, table):
        table.calls.clear()
        corpus(table, TEXTS, batch_size=3, progress=True)
        assert [call[1:] for call in table.calls] == [(3, True)]

    def test_memory_does_not_grow_with_the_corpus(self, tmp_path, monkeypatch):
        monkeypatch.setattr(room, "_BLOCK", 500)

        class Hashed:
            def encode(self, texts):
                seeds = np.array([int(text) for text in texts], dtype=np.float32)
                return np.sin(seeds[:, None] * np.arange(1, 65, dtype=np.float32))

        def peak(count):
            file = tmp_path / f"{count}.txt"
            file.write_text("".join(f"{i}\n" for i in range(count)))
            tracemalloc.start()
            corpus(Hashed(), file, sample=100)
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return found

        assert peak(20_000) - peak(2_000) < 18_000 * 100  # a vector has 256 bytes


class TestPairs:
    def test_all_measures_of_all_pairs(self, table, block):
        first, second = (rows(table, side) for side in zip(*PAIRS, strict=True))
        both = torch.cat([first, second])
        found = corpus(table, PAIRS).metrics
        assert found["alignment"] == pytest.approx(float(alignment(first, second)))
        assert found["distance_gap"] == pytest.approx(float(distance_gap(first, second)))
        assert found["margin_gap"] == pytest.approx(float(margin_gap(first, second)))
        assert found["norm_mean"] == pytest.approx(float(both.norm(dim=1).mean()))
        assert found["effective_rank"] == pytest.approx(float(effective_rank(both)))
        for name, measure in (("uniformity", uniformity), ("mean_cosine", mean_cosine)):
            expected = (float(measure(first)) + float(measure(second))) / 2
            assert found[name] == pytest.approx(expected)

    def test_one_value_for_each_pair(self, table, block):
        found = corpus(table, PAIRS, sample=15)
        assert {name: len(values) for name, values in found.items.items()} == {
            "alignment": 40,
            "distance_gap": 15,
            "margin_gap": 15,
        }
        for name, values in found.items.items():
            assert found.metrics[name] == values.mean()
        details = found.details["corpus"]
        assert (details["texts"], details["sampled"], details["positives"]) == (80, 30, "pairs")
        assert (details["positive_pairs"], details["pairs_compared"]) == (40, 15)

    def test_the_sampled_sides_belong_together(self, table, block):
        """Each text's own partner is by far the nearest: mixed up, the gaps would collapse."""
        assert corpus(table, PAIRS, sample=15).metrics["distance_gap"] > 0.5

    def test_a_file_and_further_texts(self, table, tmp_path):
        lines = [f"{a}\t{b}\tnever encoded\n" for a, b in PAIRS]
        (tmp_path / "a.tsv").write_text("".join(lines))
        assert corpus(table, tmp_path / "a.tsv").details == corpus(table, PAIRS).details
        triples = [(a, b, "never encoded") for a, b in PAIRS]
        assert corpus(table, triples).details == corpus(table, PAIRS).details


class TestDropout:
    TEXTS = ("a small boat", "the wide river", "a mill", "a boat by the mill on the river")

    def test_two_passes_of_our_own_encoder(self, tiny):
        state = torch.random.get_rng_state()
        found = corpus(tiny, self.TEXTS)
        details = found.details["corpus"]
        assert (details["positives"], details["positive_pairs"]) == ("dropout", 4)
        assert 0 < found.metrics["alignment"] < 2
        assert len(found.items["distance_gap"]) == 4
        assert torch.equal(torch.random.get_rng_state(), state)
        assert not any(module.training for module in tiny.modules())
        assert corpus(tiny, self.TEXTS).metrics == found.metrics
        assert corpus(tiny, self.TEXTS, seed=1).metrics["alignment"] != found.metrics["alignment"]

    def test_no_more_than_the_limit(self, tiny, monkeypatch):
        monkeypatch.setattr(room, "_VIEWS", 3)
        details = corpus(tiny, self.TEXTS).details["corpus"]
        assert (details["texts"], details["pairs_compared"]) == (4, 3)

    def test_a_model_without_dropout_has_no_positives(self):
        from isotrope.encoders.sentence import SentenceEncoder
        from isotrope.training.text_encoder import dropouts

        still = SentenceEncoder.scratch(["a small boat on a wide river"])
        for module, name in dropouts(still):
            setattr(module, name, 0.0)
        found = corpus(still, self.TEXTS)
        assert found.metrics["alignment"] is None
        assert found.details["corpus"]["positives"] is None


class TestBadInput:
    def test_a_sample_of_one(self, table):
        with pytest.raises(InputError, match="sample must hold at least 2 records; found 1"):
            corpus(table, TEXTS, sample=1)

    def test_files(self, table, tmp_path):
        (tmp_path / "a.tsv").write_text("a\tb\nc\t\n")
        with pytest.raises(
            InputError, match=r"a\.tsv: remove or complete 1 row with an empty text .line 2."
        ):
            corpus(table, tmp_path / "a.tsv")
        with pytest.raises(InputError, match="no such file"):
            corpus(table, tmp_path / "b.tsv")
