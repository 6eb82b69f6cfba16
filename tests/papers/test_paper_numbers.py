"""The transcription of the papers' numbers, held against the arithmetic that the papers state."""

import doctest
import math
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from statistics import fmean

import pytest

from isotrope.core import InputError
from isotrope.paradigm import find
from papers import paper_numbers
from papers.paper_numbers import Printed, printed

FILE = files("papers").joinpath("paper_numbers.toml")
NAMES = {
    "unified-gradient": "figure1 figure2 figure3 figure4 figure5 figure6 figure7 figure8 figure9 "
    "figure10 table3 table3-gains table3-earlier table3-earlier-gains table4 table4-gains table5 "
    "table6 table7 grid training",
    "align-uniform": "table1 table2 figure2 figure3 claims grid grid-ranges training",
    "cosine-pitfalls": "table1 table2 table2-claims table3 table4 table5 table6 figure2 figure4 "
    "figure5 cut flowers",
    "mio": "table1 table2 claims table3 table3-encoders training temperatures figure2 figure3 "
    "figure4 figure5 figure6 supplement-figure3",
}
EVERY = [(paper, name) for paper, names in NAMES.items() for name in names.split()]
MODIFIED = ("modifiedmhe", "modifiedmhs", "modifiedbarlowtwins", "modifiedvicreg")
ORIGINALS = ("mhe", "mhs", "barlowtwins", "vicreg")
BASES = ("bert-base", "roberta-base")
BACKBONES = ("bert-base", "bert-large", "roberta-base", "roberta-large")


def numbers(table: Printed, row: str) -> list[float]:
    return [value for value in table.rows[row] if isinstance(value, int | float)]


def value(table: Printed, row: str, column: str) -> float:
    found = table.rows[row][table.columns.index(column)]
    assert isinstance(found, int | float)
    return found


def test_every_paper_and_name_and_nothing_else() -> None:
    there = tomllib.loads(FILE.read_text(encoding="utf-8"))
    assert {paper: " ".join(names) for paper, names in there.items()} == NAMES


@pytest.mark.parametrize(("paper", "name"), EVERY)
def test_rows_fit_columns(paper: str, name: str) -> None:
    table = printed(paper, name)
    assert re.match(r"(Li|Nie|Draganov|Manna) et al. 20\d\d, ", table.source)
    assert table.rows
    assert len(set(table.columns)) == len(table.columns)
    for row, values in table.rows.items():
        assert len(values) == len(table.columns), row
        assert any(value is not None for value in values), row
        assert all(value is None or math.isfinite(float(value)) for value in values), row
    assert all(note == " ".join(note.split()) for note in table.notes)


def test_an_unknown_paper_or_name_says_what_there_is() -> None:
    message = (
        r"no paper with printed numbers is named 'unified' \(did you mean 'unified-gradient'\?\); "
        "there are unified-gradient, align-uniform, cosine-pitfalls, mio"
    )
    with pytest.raises(InputError, match=message):
        printed("unified", "table3")
    with pytest.raises(InputError, match=r"no part of 'mio' .* 'table9' .*; there are table1, "):
        printed("mio", "table9")


def test_a_caller_cannot_change_what_the_next_one_reads() -> None:
    printed("mio", "table2").rows.clear()
    assert printed("mio", "table2").rows


def test_the_example() -> None:
    outcome = doctest.testmod(paper_numbers)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def averaged(table: Printed) -> Iterator[tuple[str, float, float]]:
    for row in table.rows:
        *tasks, average = table.rows[row]
        seven = [task for task in tasks if isinstance(task, int | float)]
        if seven:
            assert len(seven) == 7
            assert isinstance(average, int | float)
            yield row, fmean(seven), average


@pytest.mark.parametrize("name", ["table3", "table4"])
def test_means_of_seven_tasks(name: str) -> None:
    rows = list(averaged(printed("unified-gradient", name)))
    assert {row for row, _, _ in rows} >= {f"{base}/{loss}" for base in BASES for loss in MODIFIED}
    assert len(rows) == 12
    for row, mean, average in rows:
        assert mean == pytest.approx(average, abs=0.02), row


@pytest.mark.parametrize("name", ["table3-gains", "table4-gains"])
def test_mean_gains(name: str) -> None:
    rows = list(averaged(printed("unified-gradient", name)))
    assert [row for row, _, _ in rows] == [f"{base}/{loss}" for base in BASES for loss in MODIFIED]
    for row, mean, average in rows:
        assert mean == pytest.approx(average, abs=0.1), row  # both rounded to one decimal


def test_the_two_versions_of_the_paper_differ_in_two_averages_only() -> None:
    earlier = printed("unified-gradient", "table3-earlier")
    differ = [
        row
        for name, column in (("table3", "STS"), ("table4", "TR"))
        for row in printed("unified-gradient", name).rows
        if value(printed("unified-gradient", name), row, "Avg") != value(earlier, row, column)
    ]
    assert differ == ["bert-base/modifiedbarlowtwins", "bert-base/modifiedvicreg"]


def test_the_two_versions_of_the_paper_differ_in_one_gain_only() -> None:
    earlier = printed("unified-gradient", "table3-earlier-gains")
    differ = [
        row
        for name, column in (("table3-gains", "STS"), ("table4-gains", "TR"))
        for row in printed("unified-gradient", name).rows
        if abs(value(printed("unified-gradient", name), row, "Avg") - value(earlier, row, column))
        > 0.051
    ]
    assert differ == ["roberta-base/modifiedbarlowtwins"]


def test_table_5_ends_at_table_3_but_for_an_exchange() -> None:
    steps = printed("unified-gradient", "table5")
    final = printed("unified-gradient", "table3")
    ends = [value(final, f"bert-base/{loss}", "Avg") for loss in MODIFIED]
    told = [value(steps, f"bert-base/{loss}", "+R") for loss in ORIGINALS]
    assert told[:2] == ends[:2]
    assert told[2:] == ends[:1:-1]  # noted, kept as printed
    assert steps.rows["bert-base/mhs"][2] is None
    for loss in ORIGINALS:
        assert all(a < b for a, b in pairwise(numbers(steps, f"bert-base/{loss}")))


def test_the_originals_of_table_5_follow_from_the_earlier_gains() -> None:
    earlier, gains = (
        printed("unified-gradient", f"table3-earlier{more}") for more in ("", "-gains")
    )
    steps = printed("unified-gradient", "table5")
    for before, after in zip(ORIGINALS, MODIFIED, strict=True):
        row = f"bert-base/{after}"
        original = value(earlier, row, "STS") - value(gains, row, "STS")
        assert original == pytest.approx(value(steps, f"bert-base/{before}", "original"), abs=1e-9)


def test_figure_1_is_table_3() -> None:
    bars = printed("unified-gradient", "figure1")
    final, gains = (printed("unified-gradient", name) for name in ("table3", "table3-gains"))
    for base in BASES:
        for before, after in zip(ORIGINALS, MODIFIED, strict=True):
            row = f"{base}/{after}"
            modified = value(final, row, "Avg")
            original = modified - value(gains, row, "Avg")
            assert numbers(bars, f"{base}/{before}") == pytest.approx([original, modified])


@pytest.mark.parametrize(("name", "base"), [("table6", "bert-base"), ("table7", "roberta-base")])
def test_hyperparameters_are_the_presets(name: str, base: str) -> None:
    table = printed("unified-gradient", name)
    assert list(table.rows) == [f"{base}/{loss}" for loss in MODIFIED]
    for loss in MODIFIED:
        preset = find(loss).presets[base]
        wanted = {**preset.values, "batch_size": preset.batch_size}
        wanted["learning_rate"] = preset.learning_rate
        row = dict(zip(table.columns, table.rows[f"{base}/{loss}"], strict=True))
        assert {key: job for key, job in row.items() if job is not None} == wanted


def test_hyperparameters_of_seven_losses_are_the_presets() -> None:
    table = printed("align-uniform", "table2")
    assert table.columns == BACKBONES
    for backbone in BACKBONES:
        told: dict[str, dict[str, float]] = {}
        for row in table.rows:
            loss, name = row.split("/")
            factor = math.pi if name.endswith(" over pi") else 1
            job = value(table, row, backbone) * factor
            told.setdefault(loss, {})[name.removesuffix(" over pi")] = job
        assert len(told) == 7
        for loss, wanted in told.items():
            preset = find(loss).presets[backbone]
            found = {**preset.values, "batch_size": preset.batch_size}
            found["learning_rate"] = preset.learning_rate
            assert wanted == pytest.approx(found), loss


def test_optima_outside_the_grids_of_nie_et_al_are_the_noted_ones() -> None:
    best = printed("align-uniform", "table2")
    choices, ranges = printed("align-uniform", "grid"), printed("align-uniform", "grid-ranges")
    outside = set()
    for row in best.rows:
        name = row.split("/")[1]
        for optimum in numbers(best, row):
            if row in ranges.rows:
                low, high, _ = numbers(ranges, row)
                inside = low <= optimum <= high
            else:
                inside = optimum in numbers(choices, row if row in choices.rows else name)
            if not inside:
                outside.add((row, optimum))
    assert outside == {
        ("dcl/temperature", 0.01),
        ("dcl/temperature", 0.02),
        ("alignuniform/balance", 0.2),
        ("alignuniform/balance", 0.4),
    }


def test_the_optima_of_li_et_al_lie_in_its_grid() -> None:
    grid = printed("unified-gradient", "grid")
    for name in ("table6", "table7"):
        best = printed("unified-gradient", name)
        for row in best.rows.values():
            for column, optimum in zip(best.columns, row, strict=True):
                assert optimum is None or optimum in grid.rows[column]


def test_li_et_al_quote_nie_et_al() -> None:
    quoted = printed("unified-gradient", "table3-earlier")
    source = printed("align-uniform", "table1")
    for base in BASES:
        for loss in ("pretrained", "mpt", "met"):
            assert quoted.rows[f"{base}/{loss}"] == source.rows[f"{base}/{loss}"]


def test_the_noted_slips_of_nie_et_al_are_there() -> None:
    table = printed("align-uniform", "table1")
    for loss in ("met", "mat"):
        assert table.rows[f"bert-large/{loss}"] == table.rows[f"bert-base/{loss}"]
    better = [
        value(table, f"{backbone}/dclplus", "STS") - value(table, f"{backbone}/dcl", "STS")
        for backbone in BACKBONES
    ]
    assert (min(better), max(better)) == pytest.approx((3.15, 4.67))
    below = [
        (row, column)
        for row in table.rows
        for column in table.columns
        if value(table, row, column) < value(table, f"{row.split('/')[0]}/pretrained", column)
    ]
    assert below == [("bert-base/dcl", "TR")]
    margins = numbers(printed("align-uniform", "figure3"), "mpt/margin")
    assert value(printed("align-uniform", "table2"), "mpt/margin", "bert-base") == margins[1]


def test_gains_of_cut_initialization() -> None:
    table = printed("cosine-pitfalls", "table3")
    gains = {
        (method, column): value(table, f"{method}/c={cut}", column)
        - value(table, f"{method}/c=1", column)
        for method, cut in (("simclr", 3), ("simsiam", 9), ("byol", 9))
        for column in table.columns
    }
    early = {key: gain for key, gain in gains.items() if key[1].endswith(" 100")}
    assert min(early, key=early.__getitem__) == ("byol", "Flowers 100")
    assert max(early, key=early.__getitem__) == ("byol", "ImageNet-100 100")
    assert (min(early.values()), max(early.values())) == pytest.approx((-0.2, 28.2))
    worse = {key for key, gain in gains.items() if gain < 0}
    assert worse == {("byol", "Flowers 100"), ("byol", "CIFAR-100 500")}
    control = printed("cosine-pitfalls", "table4")
    assert [
        value(control, f"{method}/c=3", "top-1") > value(control, f"{method}/c=1", "top-1")
        for method in ("mocov2", "mocov3", "dino")
    ] == [True, True, False]


def test_norms_rise_as_the_decay_falls() -> None:
    table = printed("cosine-pitfalls", "table1")
    assert [float(row) for row in table.rows] == sorted(map(float, table.rows), reverse=True)
    for method in ("simclr", "simsiam", "byol"):
        norms = [value(table, row, f"{method}/norm") for row in table.rows]
        neighbours = [value(table, row, f"{method}/kNN") for row in table.rows]
        assert norms == sorted(norms)
        assert neighbours[0] < max(neighbours[1:-1]) > neighbours[-1]


def test_opposite_halves_against_the_text_of_the_appendix() -> None:
    table = printed("cosine-pitfalls", "table2")
    early = {row: value(table, row, "epoch 1") for row in table.rows}
    contrastive = [rate for row, rate in early.items() if row.startswith("simclr")]
    others = [rate for row, rate in early.items() if not row.startswith("simclr")]
    assert (min(contrastive), max(contrastive)) == (2, 11)
    assert (min(others), max(others)) == (20, 28)
    assert max(value(table, row, "epoch 16") for row in table.rows) == 1


def test_the_gains_that_manna_et_al_claim() -> None:
    table, claims = printed("mio", "table2"), printed("mio", "claims")
    assert claims.columns == table.columns
    assert claims.rows["miov3"] == table.rows["miov3"]
    over = {
        loss: [
            round(ours - theirs, 2)
            for ours, theirs in zip(numbers(table, "miov3"), numbers(table, loss), strict=True)
        ]
        for loss in ("simclr", "mocov2", "dcl", "dclw")
    }
    best = [min(gains) for gains in zip(*over.values(), strict=True)]
    claimed = numbers(claims, "gain over the best contrastive")
    assert [a == b for a, b in zip(best, claimed, strict=True)] == [True, True, False, True]
    stl = table.columns.index("STL-10")
    assert (over["dclw"][stl], best[stl], over["simclr"][stl]) == (claimed[stl], 1.84, 1.84)
    gap = value(table, "byol", "CIFAR-10") - value(table, "miov3", "CIFAR-10")
    assert gap == pytest.approx(value(claims, "gap to byol", "CIFAR-10"))


def test_the_differences_of_the_smaller_encoder() -> None:
    table = printed("mio", "table3")
    for data in ("CIFAR-10", "CIFAR-100"):
        for column in table.columns:
            difference = value(table, f"{data}/resnet9", column) - value(
                table, f"{data}/resnet18", column
            )
            told = value(table, f"{data}/difference", column)
            assert difference == pytest.approx(told, abs=0.031)  # some have one decimal
    for loss in table.columns:
        assert value(table, "CIFAR-100/resnet18", loss) == value(
            printed("mio", "table2"), loss, "CIFAR-100"
        )


def test_flat_directions_of_three_losses() -> None:
    table = printed("mio", "figure2")
    assert {row: numbers(table, row) for row in table.rows} == {
        "miov1": [13],
        "miov2": [15],
        "miov3": [10],
    }
