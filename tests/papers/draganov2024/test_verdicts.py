"""Verdicts turn when numbers turn."""

import pytest

from isotrope.core.result import Result
from papers.draganov2024 import (
    figure3,
    figure4,
    figure5,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
)
from papers.draganov2024.cuts import cut_groups
from papers.draganov2024.logged import at, curve, growth, last, verdict
from papers.draganov2024.trainings import CUT, DECAYS, decayed
from papers.machinery.artifact import Results
from papers.machinery.verdicts import Spread, ahead, spread
from papers.paper_numbers import printed
from tests.papers.draganov2024.synthetic import looks, made, over, said


def test_a_mean_is_ahead_of_another_seed_by_seed() -> None:
    low, high = spread({0: 1.0, 1: 5.0, 2: 9.0}), spread({2: 10.1, 1: 6.0, 0: 1.9})
    assert ahead(high, low) is True
    assert ahead(low, high) is False
    assert ahead(high, spread({0: 9.0, 1: 5.0, 2: 1.0})) == "undecided"
    assert ahead(high, 5.0) == "undecided"
    assert ahead(high, spread({3: 1.0})) is None
    assert ahead(None, low) is None
    assert verdict("x", [True, True]).holds
    assert verdict("x", [True, None]).holds is None
    assert verdict("x", [False, None]).holds is False
    assert verdict("x", []).holds is None


def test_looks_over_seeds() -> None:
    jobs = decayed("cpu", "SimCLR", "0")
    found = Results(
        {
            jobs[0]: made([0, 4], knn=[20, 30], norm=[2, 6]),
            jobs[1]: made([0, 4], knn=[22, 34], norm=[2, 4]),
            jobs[2]: Result("images", "x", {}, {"diverged": "at step 3"}),
        }
    )
    assert at(found, jobs, "knn", 4) == Spread(32, pytest.approx(2.8284, abs=1e-3), 2)
    assert at(found, jobs, "knn", 2) is None
    assert last(found, jobs, "norm") == Spread(5, pytest.approx(1.4142, abs=1e-3), 2)
    grown = growth(found, jobs, "norm")
    assert grown is not None
    assert grown.mean == 2.5
    assert curve(found, jobs, "knn")[:2] == ([4.0], [32.0])
    assert curve(found, jobs, "norm")[:2] == ([1.0, 4.0], [2.0, 5.0])


def decays(name: str, **numbers: list[float]) -> dict:
    """By decay, the largest first, after 4 epochs."""
    return {
        job: result
        for place, decay in enumerate(DECAYS["cpu"])
        for job, result in over(
            decayed("cpu", name, decay), [0, 4], **{k: [1, v[place]] for k, v in numbers.items()}
        ).items()
    }


def test_table1() -> None:
    norm, knn = [0.0, 0.1, 0.4, 13.5, 16.4], [10, 54, 81, 75, 75]
    as_printed = table1.render("cpu", Results(decays("SimCLR", norm=norm, knn=knn)))
    ours = [v for v in as_printed.verdicts if v.claim.startswith("SimCLR")]
    assert [v.holds for v in ours] == [True, True, True]
    assert {v.holds for v in as_printed.verdicts if v not in ours} == {None}
    assert as_printed.tables[0].rows[1] == [
        *("SimCLR", "5e-3", "54.0", "0.1", "54.0 ± 0.5", "0.100 ± 0.001")
    ]
    turned = table1.render("cpu", Results(decays("SimCLR", norm=norm[::-1], knn=[*knn[:4], 90])))
    assert [v.holds for v in turned.verdicts[:3]] == [False, False, False]


def test_table2() -> None:
    def share(early: float, late: float, far: float) -> dict[str, list[float]]:
        return {"opposite_halves": [early, late], "far_opposite": [far, 0.0]}

    def every(simclr: float, others: float, late: float, far: float, bare: float) -> Results:
        found = {}
        for name in CUT:
            early = simclr if name == "SimCLR" else others
            found |= over(table2.trained("cpu", name, "cifar10"), [0, 8], **share(early, late, far))
        for name in table2.NORMALISED:
            found |= over(table2.heads("cpu", name, True), [0, 1], **share(others, 0, 0))
            found |= over(table2.heads("cpu", name, False), [0, 1], **share(bare, 0, 0))
        return Results(found)

    as_printed = table2.render("cpu", every(0.05, 0.25, 0.01, 0.0, 0.1))
    assert {v.holds for v in as_printed.verdicts} == {True}
    assert len(as_printed.verdicts) == 7
    turned = table2.render("cpu", every(0.25, 0.05, 0.04, 0.001, 0.1))
    assert {v.holds for v in turned.verdicts} == {False}
    assert as_printed.tables[0].rows[0][2] == "2 (ImageNet-100), 11 (CIFAR-100)"


def test_table3() -> None:
    both, epochs = table3.groups("cpu")["learning rates a thirtieth of them"]
    plain, small = both["BYOL"]
    better = {"knn": [25, 26, 27]}
    for one, other, holds in ((plain, small, True), (small, plain, False)):
        found = over(one, [0, *epochs], **better) | over(other, [0, *epochs], knn=[25, 30, 31])
        shown = table3.render("cpu", Results(found))
        (told,) = [v for v in shown.verdicts if v.holds is not None]
        assert told.claim.startswith("BYOL")
        assert told.holds is holds
    assert "31 of 33" in shown.notes[0]  # all but BYOL on CIFAR-100 at 500 and Flowers at 100


def test_table4() -> None:
    def accuracies(gain: float) -> Results:
        found = {}
        for name in table4.NAMES:
            found |= over(table4.trained("paper", name, 1), [100], knn=[40])
            found |= over(table4.trained("paper", name, 3), [100], knn=[40 + gain])
        return Results(found)

    assert [v.holds for v in table4.render("paper", accuracies(5)).verdicts] == [True, True, False]
    assert [v.holds for v in table4.render("paper", accuracies(-5)).verdicts] == [
        False,
        False,
        True,
    ]


def test_table5_and_table6_as_printed() -> None:
    for table, name in ((table5, "table5"), (table6, "table6")):
        (grid,) = table.grids("paper").values()
        rows = printed("cosine-pitfalls", name).rows
        row = next(iter(rows)).partition("/")[0]
        found = {
            job: made([100], knn=[value])
            for c, decayed_ in grid.items()
            for (_, own), value in zip(decayed_.items(), rows[f"{row}/c={c:g}"], strict=True)
            for job in own
        }
        ours, theirs = table.render("paper", Results(found)).tables[::-1]
        assert ours.rows == [
            [job if i == 0 else f"{job} ± 0.0" for i, job in enumerate(line)]
            for line in theirs.rows
        ]
        holds = [v.holds for v in table.render("paper", Results(found)).verdicts]
        assert holds == ([True, False] if name == "table5" else [True, True, True])


def test_table6_turns() -> None:
    wide, high = table6.grids("cpu").values()
    found = over(wide[1]["5e-3"], [4], knn=[30]) | over(wide[1]["5e-6"], [4], knn=[35])
    found |= over(high[1]["5e-4"], [4], knn=[30]) | over(high[9]["5e-4"], [4], knn=[25])
    found |= over(high[9][table6.STRONG], [4], knn=[20])
    assert [v.holds for v in table6.render("cpu", Results(found)).verdicts] == [False, False, False]


@pytest.mark.parametrize(("factor", "holds"), [(2.0, True), (0.5, False)])
def test_figure3(factor: float, holds: bool) -> None:
    found = {}
    for name in figure3.PARTS:
        found |= over(figure3.part("cpu", name), [0, 1, 2], norm=[1, 1, factor])
    for name in CUT:
        found |= decays(name, norm=[0.1, 1, 1, 1, factor] if holds else [2, 1, 1, 1, factor])
    shown = figure3.render("cpu", Results(found))
    assert [v.holds for v in shown.verdicts] == [holds] * 8


def test_figure4() -> None:
    def space(clusters: float, opposite: float, poles: bool) -> Result:
        rows = looks([0, 1, 16], clusters=[clusters] * 3, opposite_halves=[0.3, opposite, 0.01])
        anchors = [[1.0, 0.1], [1.0, -0.1], [-1.0 if poles else 1.0, 0.0]]
        pairs = {"1": {"anchors": anchors, "positives": anchors}}
        return Result("latent", "x", {}, {"looks": rows, "pairs": pairs})

    def every(*numbers: tuple[float, float, bool]) -> Results:
        names = ("SimCLR", "BYOL", "BYOL, no batch norm")
        jobs = [
            (job, space(*own))
            for name, own in zip(names, numbers, strict=True)
            for job in figure4.trained("cpu", name)
        ]
        return Results(dict(jobs))

    as_printed = figure4.render("cpu", every((0.2, 0, False), (0.9, 0.3, True), (0.9, 0.1, False)))
    assert [v.holds for v in as_printed.verdicts] == [True] * 4
    assert "33.3" in as_printed.verdicts[1].evidence
    turned = figure4.render("cpu", every((0.9, 0, False), (0.2, 0.1, False), (0.9, 0.3, False)))
    assert [v.holds for v in turned.verdicts] == [False, False, False, True]


def test_figure5() -> None:
    small = cut_groups("cpu")["learning rates a thirtieth of the recipes'"]

    def every(slope: float) -> Results:
        """Accuracies that rise with c, norms that fall with it, or the other way round."""
        found = {}
        for name, cuts in small.items():
            steep = 2 * slope if name != "SimCLR" else slope
            for place, own in enumerate(dict(sorted(cuts.items())).values()):
                knn, norm = 30 + steep * place, 10 - slope * place
                found |= over(own, [0, 2, 4], knn=[25, knn, knn], norm=[norm] * 3)
        return Results(found)

    for slope, holds in ((3.0, True), (-3.0, False)):
        shown = figure5.render("cpu", every(slope))
        assert [v.holds for v in shown.verdicts] == [holds] * 6
    assert said(shown, "degrades gracefully").evidence.startswith("SimCLR, c = 1/3: 30")
