"""Paired bootstrap: correlations, intervals and p-values against plain loops and known cases."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.evaluation.compare import compare, compare_results
from isotrope.evaluation.sts import spearman
from isotrope.evaluation.tables import tables
from isotrope.measures import bootstrap
from isotrope.measures.bootstrap import holm, intervals, shown_p

NAMES = ("STS12", "STS13")


def scored(name: str, noise: float, seed: int = 1, size: int = 400, **details: object) -> Result:
    """A Result as ``evaluate`` gives it: two STS tasks and their average, a task of accuracy."""
    items, tasks = {}, {}
    for task in NAMES:
        rng = np.random.default_rng(len(task))
        gold = rng.integers(0, 26, size) / 5
        predicted = gold + noise * np.random.default_rng(seed).normal(size=size)
        items |= {f"{task}/cosine": predicted, f"{task}/gold": gold}
        tasks[task] = {"spearman": round(100 * spearman(predicted, gold), 2)}
    right = np.random.default_rng(seed).random(size) > noise / 10
    items |= {"MR": right, "knn_top1": right, "knn_top5": right, "other": right}
    tasks["MR"] = {"accuracy": round(100 * right.mean(), 2)}
    average = np.mean([tasks[task]["spearman"] for task in NAMES])
    metrics = {task: next(iter(scores.values())) for task, scores in tasks.items()}
    metrics |= {"average": round(average, 2), "knn_top1": right.mean(), "knn_top5": None}
    held = {"tasks": tasks, "data": {"STS12": "ab"}, "protocol": {"sts": 1}, **details}
    return Result("sts", name, metrics, held, {}, items)


def test_ranks_of_a_resample_are_those_of_the_repeated_pairs() -> None:
    rng = np.random.default_rng(0)
    gold, one = rng.integers(0, 6, 30) / 2, rng.normal(size=30)
    tied = np.round(one)
    counts = np.stack([np.bincount(rng.integers(30, size=30), minlength=30) for _ in range(20)], 1)
    found = bootstrap.spearman([one, tied, np.ones(30)], gold, [counts.astype(float)])
    assert found.shape == (3, 20)
    for b in range(20):
        places = np.repeat(np.arange(30), counts[:, b])
        for row, scores in zip(found, (one, tied), strict=False):
            assert row[b] == pytest.approx(spearman(scores[places], gold[places]), abs=1e-12)
    assert (found[2] == 0).all()  # nothing is ranked


def test_values_are_sorted_once_for_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    results, sizes, unique = [scored("a", 1), scored("b", 2)], [], np.unique

    def counted(values, **options):
        sizes.append(len(values))
        return unique(values, **options)

    monkeypatch.setattr("isotrope.measures.bootstrap._BLOCK", 800)  # blocks of two resamples
    monkeypatch.setattr(np, "unique", counted)
    compare_results(results, resamples=20)
    assert sizes.count(400) == len(NAMES) * (1 + len(results))


def test_all_scores_of_a_table_have_the_same_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, blocks = np.random.default_rng(0), []
    rows = [rng.random(300), rng.random(300) > 0.5, rng.random(300).astype(np.float32)]
    alone = [intervals(row[None])[0] for row in rows]
    draw = bootstrap.resampled
    monkeypatch.setattr(bootstrap, "resampled", lambda *args: blocks.append(args) or draw(*args))
    assert intervals(np.stack(rows)) == alone
    result = Result("knn", "x", {"knn_top1": 1, "knn_top5": 1}, {"knn": {"top1": 1, "top5": 1}})
    shown = tables(replace(result, items={"knn_top1": rows[0], "knn_top5": rows[1]}))
    assert [line.split()[2:] for line in shown.splitlines()[2:4]] == [
        [f"{100 * bound:.2f}" for bound in of.values()] for of in alone[:2]
    ]
    assert len(blocks) == 2


def test_a_printed_comparison_is_a_table() -> None:
    found = compare_results([scored("one", 1.0), scored("two", 2.0, seed=2)])
    lines = str(found).splitlines()
    assert lines[0].split()[:4] == ["model", "STS12", "STS13", "average"]
    assert any(line.startswith("two  ") and line.endswith("lower") for line in lines)
    assert repr(found).startswith("Result(comparison of one: ")
    found.details["columns"]["STS12"]["differences"][0] |= {"p": 0.052, "verdict": "noise"}
    assert "0.052  noise" in str(found)


def test_a_shown_p_value_is_on_the_side_of_the_limit_where_its_verdict_is() -> None:
    assert [shown_p(p) for p in (0.0009, 0.048, 0.052, 1.0)] == [
        "<0.001",
        "0.048",
        "0.052",
        "1.000",
    ]


def test_models_of_one_name_are_told_apart() -> None:
    models = [scored(name, noise) for name, noise in (("a", 1), ("a (2)", 2), ("a", 4), ("a", 3))]
    found = compare_results(models, resamples=50)
    names = ["a", "a (2)", "a (3)", "a (4)"]
    assert found.details["models"] == names
    assert [found.metrics[f"MR of {name}"] for name in names] == [m.metrics["MR"] for m in models]


def test_a_clear_difference_and_no_difference() -> None:
    result = compare_results([scored("a", 1), scored("a again", 1), scored("b", 4)], resamples=400)
    columns = result.details["columns"]
    assert list(columns) == ["STS12", "STS13", "average", "MR", "knn_top1"]
    assert result.details["comparisons"] == 5
    for column in columns.values():
        same, other = column["differences"]
        assert (same["value"], same["low"], same["high"]) == (0, 0, 0)
        assert (same["p"], same["verdict"]) == (1, "noise")
        assert other["verdict"] == "lower"
        assert other["low"] < other["value"] < other["high"] < 0
        assert [model["best"] for model in column["models"]] == [True, True, False]
        for model in column["models"]:
            assert model["low"] <= model["value"] <= model["high"]
    assert [columns[name]["percent"] for name in columns] == [True, True, True, True, False]
    assert (result.kind, result.details["models"]) == ("comparison", ["a", "a again", "b"])
    assert compare_results([scored("b", 4), scored("a", 1)], resamples=400).details["columns"][
        "MR"
    ]["differences"][0]["verdict"] == ("higher")


def test_the_direction_of_a_difference_below_the_rounding_of_scores() -> None:
    rng = np.random.default_rng(0)
    gold = rng.uniform(0, 5, 3000)
    cosines = gold / 5 * 0.8 + rng.normal(0, 0.1, 3000)
    better, order, changed = cosines.copy(), np.argsort(cosines), 0
    for p, q in zip(order[::2], order[1::2], strict=True):  # neighbours in the wrong order
        if gold[p] > gold[q] and changed < 30:
            better[p], better[q], changed = cosines[q], cosines[p], changed + 1
    results = [
        Result(
            kind="sts",
            name=name,
            metrics={"mine": round(100 * spearman(x, gold), 2)},
            details={"tasks": {"mine": {"spearman": round(100 * spearman(x, gold), 2)}}},
            provenance={},
            items={"mine/cosine": x, "mine/gold": gold},
        )
        for name, x in (("a", cosines), ("b", better))
    ]
    (cell,) = compare_results(results).details["columns"]["mine"]["differences"]
    assert cell["value"] == 0
    assert cell["low"] > 0
    assert cell["verdict"] == "higher"


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    """The interval of an accuracy p over n: 1.96 sqrt(p (1 - p)/n) to both sides."""
    found = compare_results(
        [scored("a", 3, size=2000), scored("b", 3, seed=2, size=2000)], resamples=2000
    )
    model = found.details["columns"]["MR"]["models"][0]
    p = model["value"] / 100
    width = 196 * np.sqrt(p * (1 - p) / 2000)
    assert model["high"] - model["value"] == pytest.approx(width, rel=0.15)
    assert model["value"] - model["low"] == pytest.approx(width, rel=0.15)


def test_pairing_is_what_makes_small_differences_seen() -> None:
    """Two models that differ in few examples: far less noise in the difference than in each."""
    first, second = scored("a", 3, size=1000), scored("b", 3, size=1000)
    right = first.items["MR"].copy()
    right[np.flatnonzero(~right)[:20]] = True
    second.items["MR"] = right
    second.metrics["MR"] = round(100 * right.mean(), 2)
    column = compare_results([first, second], resamples=1000).details["columns"]["MR"]
    (difference,) = column["differences"]
    assert difference["value"] == pytest.approx(2)
    assert difference["verdict"] == "higher"
    assert difference["low"] > 0.9
    assert column["models"][0]["high"] - column["models"][0]["low"] > 4


def test_a_handful_of_examples_shows_nothing() -> None:
    """All examples that change do so to one side: by chance one time in 2^(n - 1)."""
    sizes = ((1, "noise"), (2, "noise"), (5, "noise"), (12, "higher"))
    for (size, verdict), equal in itertools.product(sizes, (0, 1000)):
        first, second = scored("a", 3, size=400), scored("b", 3, size=400)
        for result, right in ((first, False), (second, True)):
            result.items.clear()
            result.items["MR"] = np.append(np.full(size, right), np.full(equal, True))
            accuracy = 100.0 * result.items["MR"].mean()
            result.metrics.update({"MR": accuracy, "average": None, "knn_top1": None})
            result.details["tasks"] = {"MR": {"accuracy": accuracy}}
        del first.metrics["average"], second.metrics["average"]
        column = compare_results([first, second], resamples=2000).details["columns"]["MR"]
        (difference,) = column["differences"]
        # where there are equal examples, a resample may hold none of the others
        assert difference["p"] >= max(2 / 2001, 2 ** (1 - size))
        assert equal or difference["p"] == max(2 / 2001, 2 ** (1 - size))
        assert difference["verdict"] == verdict


@pytest.mark.parametrize(("changed", "told"), [(0, False), (3, False), (5, True), (6, False)])
def test_noise_of_a_few_changed_scores_is_explained(changed: int, told: bool) -> None:
    """The interval excludes 0 from four changed scores on, and p is below 0.05 from six on."""
    first, other = np.zeros(9 if changed > 4 else 400), np.zeros(9 if changed > 4 else 400)
    other[:changed] = 1
    both = [
        Result("knn", name, {"top": float(right.mean())}, {"tasks": {}}, {}, {"top": right})
        for name, right in (("a", first), ("b", other))
    ]
    found = compare_results(both, metric="top")
    (difference,) = found.details["columns"]["top"]["differences"]
    assert difference["changed"] == changed
    assert (difference["verdict"] == "noise") == (changed < 6)
    assert (f"top of b: only {changed} " in str(found)) == told


def test_noise_is_seldom_called_a_difference() -> None:
    """Twenty pairs of equally good models: one difference in twenty, not more, may be seen."""
    called = 0
    for seed in range(20):
        pair = [scored("a", 3, seed=100 + seed, size=100), scored("b", 3, seed=seed, size=100)]
        columns = compare_results(pair, resamples=200).details["columns"]
        called += any(column["differences"][0]["verdict"] != "noise" for column in columns.values())
    assert called <= 4


def test_the_seed_decides_and_columns_do_not_disturb_each_other() -> None:
    models = [scored("a", 1), scored("b", 2)]
    first, again = (compare_results(models, resamples=50).details["columns"] for _ in range(2))
    assert first == again
    assert compare_results(models, resamples=50, seed=1).details["columns"] != first
    for model in models:
        del model.items["STS12/cosine"], model.items["STS12/gold"]
        del model.details["tasks"]["STS12"], model.metrics["average"]
    alone = compare_results(models, resamples=50).details["columns"]
    assert alone["STS13"]["models"] == first["STS13"]["models"]


def test_many_comparisons_can_still_find_something() -> None:
    """With 5,000 resamples the least p-value of 130 scores would be 0.052."""
    models = [scored("a", 1, size=50), scored("b", 40, size=50)]
    for model in models:
        extra = {f"score {i}": model.items["MR"] for i in range(125)}
        model.items.update(extra)
        model.metrics.update({name: right.mean() for name, right in extra.items()})
    result = compare_results(models)
    assert result.details["comparisons"] == 130
    assert result.details["resamples"] == 13_000
    for column in result.details["columns"].values():
        assert {cell["verdict"] for cell in column["differences"]} == {"lower"}


def test_other_models_do_not_change_the_verdict_on_two() -> None:
    """A correction for all models would make the difference in MR noise beside twenty others."""
    pair = [scored("a", 3), scored("b", 2.83)]
    others = [scored("c", 3, seed=seed) for seed in range(2, 22)]
    alone, beside = (compare_results(models) for models in (pair, [*pair, *others]))
    for name, column in alone.details["columns"].items():
        (own,) = column["differences"]
        assert beside.details["columns"][name]["differences"][0] == pytest.approx(own)
    assert alone.details["columns"]["MR"]["differences"][0]["verdict"] == "higher"


def test_the_tasks_of_transfer_alone() -> None:
    """What ``transfer`` returns calls the average of its accuracies ``average``, too."""
    models = [scored("a", 1), scored("b", 2)]
    for model in models:
        for task in NAMES:
            del model.items[f"{task}/cosine"], model.items[f"{task}/gold"]
            del model.details["tasks"][task], model.metrics[task]
    assert list(compare_results(models, resamples=50).details["columns"]) == ["MR", "knn_top1"]


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_score_that_decides_is_a_single_test() -> None:
    models, name = [scored("a", 3), scored("b", 2.87)], "knn_top1"
    alone = [replace(m, items={name: m.items[name]}, details={}) for m in models]
    usual, found = (compare_results(models, metric=metric) for metric in ("", name))
    holms, p, single = (
        result.details["columns"][name]["differences"][0]["p"]
        for result in (usual, found, compare_results(alone))
    )
    assert p == single < holms
    others = usual.details["columns"].keys() - {name}
    assert all(usual.details["columns"][n] == found.details["columns"][n] for n in others)
    assert "5 scores of a model except knn_top1," in str(found)
    with pytest.raises(InputError, match="knn_top1"):
        compare_results(models, metric="knn")


def test_what_cannot_be_compared() -> None:
    first = scored("a", 1)
    with pytest.raises(InputError, match="at least two models to compare; found 1"):
        compare([first])
    for what in ("data", "protocol"):
        with pytest.raises(
            InputError, match=rf"evaluate both .* b was scored \w+ \w+ {what} than a"
        ):
            compare_results([first, scored("b", 1, **{what: {"STS12": "other"}})])
    with pytest.raises(InputError, match=r"evaluate both .* b was scored in another mode than a"):
        compare_results([scored("a", 1, mode="full"), scored("b", 1, mode="prototyping")])
    for items in ({}, {"MR": np.ones(3)}):
        broken = scored("b", 1)
        broken.items.clear()
        broken.items.update(items)
        with pytest.raises(InputError, match="the results of a and b do not have the same scored"):
            compare_results([first, broken])
