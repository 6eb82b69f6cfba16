import json
import math

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from isotrope.core.errors import InputError
from isotrope.core.progress import showing
from isotrope.data.text.sts_sets import TASKS, Subset, load_sts
from isotrope.evaluation.embed import CachedEncoder
from isotrope.evaluation.sts import load_tasks, score_task, similarities, spearman, sts_dev
from isotrope.evaluation.tasks import with_average

from .conftest import Table


def subset(task, name, split, rng, size=12):
    sentences = [f"{task} {name} {split} {i}" for i in range(2 * size)]
    scores = rng.integers(0, 6, size).astype(float)
    return Subset(task, name, split, scores, sentences[:size], sentences[size:])


def sts(encoder, data, **options):
    memory = CachedEncoder(encoder, **options)
    tasks = data if isinstance(data, dict) else load_tasks(data)
    return with_average([score_task(memory, task, subsets) for task, subsets in tasks.items()])


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    years = {t: [subset(t, n, "test", rng) for n in ("x", "y")] for t in TASKS[:5]}
    split = {t: [subset(t, s, s, rng) for s in ("train", "dev", "test")] for t in TASKS[5:]}
    return years | split


@pytest.fixture
def table(sets):
    rng = np.random.default_rng(1)
    texts = [t for task in sets.values() for s in task for t in (*s.first, *s.second)]
    return Table({text: rng.normal(size=4) * rng.uniform(0.1, 9) for text in texts})


def cosine(table, subset):
    x, y = (np.array([table.vectors[t] for t in side]) for side in (subset.first, subset.second))
    x, y = x.astype(np.float32).astype(float), y.astype(np.float32).astype(float)
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


def test_a_year_is_one_correlation_over_all_its_pairs(sets, table):
    result = sts(table, sets)
    for task in TASKS:
        used = [s for s in sets[task] if s.split == "test"]
        predicted = np.concatenate([cosine(table, s) for s in used])
        gold = np.concatenate([s.scores for s in used])
        expected = round(100 * spearmanr(predicted, gold).statistic, 2)
        assert result.details["tasks"][task]["spearman"] == expected
        assert result.details["tasks"][task]["pairs"] == len(gold)
        assert result.metrics[task] == expected
    rounded = [result.metrics[task] for task in TASKS]
    assert result.details["average"] == result.metrics["average"] == round(np.mean(rounded), 2)
    assert list(result.details) == ["tasks", "average"]
    assert list(result.details["tasks"]) == list(TASKS)
    assert (result.kind, result.name) == ("sts", "table")


def test_one_call_encodes_all_sentences_once(sets, table):
    with showing(show=True):
        sts(table, sets, batch_size=5)
    texts = [text for call in table.calls for text in call[0]]
    assert len(texts) == len(set(texts)) == 14 * 12 * 2  # no training split
    assert {call[1:] for call in table.calls} == {(5, True)}


def test_what_else_papers_print(sets, table):
    """Means over subsets, Pearson, other similarities, the dev split: each against scipy."""
    sets["STS12"][1] = subset("STS12", "y", "test", np.random.default_rng(9), size=7)
    table.vectors |= {
        t: np.random.default_rng(len(t)).normal(size=4) * i
        for i, t in enumerate((*sets["STS12"][1].first, *sets["STS12"][1].second), 1)
    }
    tasks = sts(table, sets).details["tasks"]
    x, y = sets["STS12"]
    each = [100 * spearmanr(cosine(table, s), s.scores).statistic for s in (x, y)]
    found = tasks["STS12"]
    assert [found["subsets"][name]["spearman"] for name in "xy"] == [
        round(value, 2) for value in each
    ]
    assert [found["subsets"][name]["pairs"] for name in "xy"] == [12, 7]
    assert found["mean"]["spearman"] == round(np.mean(each), 2)
    assert found["weighted_mean"]["spearman"] == round(np.average(each, weights=[12, 7]), 2)
    predicted = np.concatenate([cosine(table, s) for s in (x, y)])
    gold = np.concatenate([x.scores, y.scores])
    assert found["pearson"] == round(100 * pearsonr(predicted, gold).statistic, 2)
    assert found["split"] == tasks["STS-B"]["split"] == "test"

    dev, test = sets["STS-B"][1:]
    assert "subsets" not in tasks["STS-B"]
    for pairs, found in ((test, tasks["STS-B"]), (dev, tasks["STS-B"]["dev"])):
        a, b = (
            np.array([table.vectors[t] for t in side], dtype=np.float32).astype(float)
            for side in (pairs.first, pairs.second)
        )
        by_hand = {
            "dot": (a * b).sum(1),
            "euclidean": -np.sqrt(((a - b) ** 2).sum(1)),
            "manhattan": -abs(a - b).sum(1),
        }
        for kind, values in by_hand.items():
            assert found[kind] == {
                "spearman": round(100 * spearmanr(values, pairs.scores).statistic, 2),
                "pearson": round(100 * pearsonr(values, pairs.scores).statistic, 2),
            }
        assert found["spearman"] == round(100 * spearmanr(cosine(table, pairs), pairs.scores)[0], 2)
        assert found["pairs"] == 12


def test_means_over_subsets_are_rounded_once(sets, table):
    """Of the rounded values the mean would often be another: SentEval averages before."""
    differ = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        parts = [subset("STS12", name, "test", rng, 11) for name in "xy"]
        table.vectors |= {t: rng.normal(size=4) for s in parts for t in (*s.first, *s.second)}
        found = score_task(table, "STS12", parts).details["tasks"]["STS12"]
        each = [100 * spearmanr(cosine(table, s), s.scores).statistic for s in parts]
        assert found["mean"]["spearman"] == float(f"{np.mean(each):.2f}")
        twice = np.mean([round(value, 2) for value in each])
        differ += f"{twice:.2f}" != f"{np.mean(each):.2f}"
    assert differ


def test_alignment_and_uniformity_of_the_dev_split(sets, table):
    """As Nie et al. 2023 plots them: alignment of pairs above 4, uniformity of all sentences."""
    dev = sets["STS-B"][1]
    dev.scores[:3] = (4.5, 5, 4)
    dev.second[0] = dev.first[1]  # a repeated sentence counts once
    found = sts(table, sets).details["tasks"]["STS-B"]["dev"]
    unit = {t: v / np.linalg.norm(v) for t, v in table.vectors.items()}
    a, b = (np.stack([unit[t] for t in side]) for side in (dev.first, dev.second))
    close = dev.scores > 4
    assert close.sum() >= 2
    assert found["alignment"] == pytest.approx(((a - b) ** 2).sum(1)[close].mean(), abs=1e-4)
    rows = np.stack([unit[t] for t in dict.fromkeys([*dev.first, *dev.second])])
    assert len(rows) == 23
    i, j = np.triu_indices(23, 1)
    kernel = np.exp(-2 * ((rows[i] - rows[j]) ** 2).sum(1)).mean()
    assert found["uniformity"] == pytest.approx(np.log(kernel), abs=1e-4)
    dev.scores[:] = np.arange(12) / 3
    assert sts(table, sets).details["tasks"]["STS-B"]["dev"]["alignment"] is None


def test_items_hold_every_pair(sets, table):
    items = sts(table, sets).items
    assert set(items) == {f"{task}/{what}" for task in TASKS for what in ("cosine", "gold")}
    x, y = sets["STS14"]
    assert items["STS14/cosine"] == pytest.approx(
        np.concatenate([cosine(table, s) for s in (x, y)])
    )
    assert np.array_equal(items["STS14/gold"], np.concatenate([x.scores, y.scores]))
    assert len(items["STS-B/gold"]) == 12  # the test split alone


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "own.tsv"
    file.write_text("5\ta\tb\n2\ta\tzero\n0\ta\tc\n")
    table = Table({"a": [1.0, 0], "b": [1, 1], "zero": [0, 0], "c": [-1, 0]})
    result = sts(table, file)
    assert result.metrics == {"own.tsv": 100.0}
    assert result.details["tasks"]["own.tsv"]["split"] == "all"
    assert list(result.details) == ["tasks"]
    named_dev = file.rename(tmp_path / "dev.tsv")
    assert sts(table, named_dev).details["tasks"]["dev.tsv"]["pairs"] == 3


def test_an_empty_vector_counts_as_zero_and_a_broken_one_is_refused():
    vectors = {"a": [1.0, 0], "b": [1, 1], "zero": [0, 0], "nan": [np.nan, 1], "c": [-1, 0]}
    pairs = Subset("x", "x", "dev", np.array([5.0, 2, 0]), ["a", "a", "a"], ["b", "zero", "c"])
    expected = spearmanr([0.7, 0, -1], pairs.scores).statistic
    assert sts_dev(Table(vectors), pairs) == pytest.approx(100 * expected, abs=1e-9)
    broken = Subset("x", "x", "dev", np.array([5.0, 2]), ["a", "a"], ["b", "nan"])
    with pytest.raises(InputError, match="not finite"):
        sts_dev(Table(vectors), broken)


def test_the_dev_score_is_not_rounded(sets, table):
    dev = sets["STS-B"][1]
    expected = 100 * spearmanr(cosine(table, dev), dev.scores).statistic
    assert sts_dev(table, dev) == pytest.approx(expected, abs=1e-9)


def test_spearman_with_ties_equals_scipy():
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 4, 50), rng.integers(0, 4, 50)
    assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("unit", [1e308, 1.0, 5e-324])
def test_scores_on_any_scale(unit):
    """Their squares overflow, or are 0; Pearson's correlation is what it is of 1, 0 and -1."""
    pairs = Subset("own.tsv", "own", "all", np.array([1, 0, -1]) * unit, list("abc"), list("def"))
    vectors = {"a": [1, 0], "b": [1, 0], "c": [1, 0], "d": [1, 0], "e": [1, 1], "f": [0, 1]}
    scores = score_task(Table(vectors), "own.tsv", [pairs]).details["tasks"]["own.tsv"]
    cosines = [1, math.sqrt(0.5), 0]
    assert scores["pearson"] == round(100 * np.corrcoef(cosines, [1, 0, -1])[0, 1], 2)


def test_a_collapsed_encoder_ranks_nothing(sets):
    class Same:
        def encode(self, texts):
            return np.ones((len(texts), 3))

    assert sts_dev(Same(), sets["STS-B"][1]) == 0
    assert sts(Same(), sets).details["average"] == 0


@pytest.mark.parametrize("scores", [[1.0, 1.0], [1.0, np.nan], [1.0]])
def test_human_scores_that_rank_nothing(scores):
    pairs = Subset(
        "own.tsv", "own", "all", np.array(scores), ["a"] * len(scores), ["b"] * len(scores)
    )
    with pytest.raises(InputError, match=r"human scores for own\.tsv .* all equal"):
        sts_dev(Table({"a": [1, 0], "b": [1, 1]}), pairs)


def test_the_result_is_json(sets, table):
    assert (
        json.loads(sts(table, sets).to_json())["details"]["tasks"]["STS12"]["spearman"] is not None
    )


@pytest.mark.slow  # a real encoder
def test_published_value_of_sts_b(minilm, shared_data):
    (test,) = (s for s in load_sts(shared_data / "sts", ["STS-B"])["STS-B"] if s.split == "test")
    assert sts_dev(minilm, test) == pytest.approx(82.03, abs=0.02)


def test_pairs_of_twice_the_same_sentence_tie() -> None:
    """By rounding alone their cosines would be several numbers around 1, and be ranked."""
    rows = np.random.default_rng(0).normal(size=(200, 384)).astype(np.float32)
    square = (rows.astype(np.float64) ** 2).sum(axis=1)
    assert len(set(square / np.linalg.norm(rows.astype(np.float64), axis=1) ** 2)) > 1
    assert set(similarities(rows, rows.copy())["cosine"]) == {1.0}
    assert set(similarities(0 * rows, 0 * rows)["cosine"]) == {0.0}
