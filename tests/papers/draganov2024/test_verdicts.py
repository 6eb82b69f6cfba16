"""Verdicts turn when numbers turn."""

import pytest

from isotrope.core import Result
from papers.draganov2024.trainings import CUT, named
from papers.machinery.artifact import Rendered, Results, Scale
from papers.machinery.catalogue import find_artifacts
from papers.machinery.logged import epochs, over_seeds
from papers.machinery.verdicts import Spread, ahead, all_of, spread
from papers.paper_numbers import printed
from tests.papers.draganov2024.synthetic import looks, made, over, said

DECAYS = ("5e-2", "5e-3", "5e-4", "5e-6", "0")


def render(name: str, results: Results, scale: Scale = "cpu") -> Rendered:
    (artifact,) = find_artifacts("cosine-pitfalls", [name])
    return artifact.render(scale, results)


def test_a_mean_is_ahead_of_another_seed_by_seed() -> None:
    low, high = spread({0: 1.0, 1: 5.0, 2: 9.0}), spread({2: 10.1, 1: 6.0, 0: 1.9})
    assert ahead(high, low) is True
    assert ahead(low, high) is False
    assert ahead(high, spread({0: 9.0, 1: 5.0, 2: 1.0})) == "undecided"
    assert ahead(high, 5.0) == "undecided"
    assert ahead(high, spread({3: 1.0})) is None
    assert ahead(None, low) is None
    assert all_of([True, True])
    assert all_of([True, None]) is None
    assert all_of([False, None]) is False
    assert all_of([]) is None


def test_looks_over_seeds() -> None:
    jobs = named("cpu", "SimCLR, decay 0")
    found = Results(
        {
            jobs[0]: made([0, 4], knn=[20, 30], norm=[2, 6]),
            jobs[1]: made([0, 4], knn=[22, 34], norm=[2, 4]),
            jobs[2]: Result("images", "x", {}, {"diverged": "at step 3"}),
        }
    )
    assert over_seeds(found, jobs, "at 4", "knn") == Spread(32, pytest.approx(2.8284, abs=1e-3), 2)
    assert over_seeds(found, jobs, "at 2", "knn") is None
    assert over_seeds(found, jobs, "last", "norm") == Spread(5, pytest.approx(1.4142, abs=1e-3), 2)
    grown = over_seeds(found, jobs, "growth", "norm")
    assert grown is not None
    assert grown.mean == 2.5
    assert epochs(found, jobs, "knn")[:2] == ([4.0], [32.0])
    assert epochs(found, jobs, "norm")[:2] == ([1.0, 4.0], [2.0, 5.0])


def decays(name: str, *, unclipped: bool = False, **numbers: list[float]) -> dict:
    """By decay, the largest first, after 4 epochs."""
    return {
        job: result
        for place, decay in enumerate(DECAYS)
        for job, result in over(
            named("cpu", f"{name}, decay {decay}{', unclipped' * unclipped}"),
            [0, 4],
            **{k: [1, v[place]] for k, v in numbers.items()},
        ).items()
    }


def test_table1() -> None:
    norm, knn = [0.0, 0.1, 0.4, 13.5, 16.4], [10, 54, 81, 75, 75]
    as_printed = render("table1", Results(decays("SimCLR", unclipped=True, norm=norm, knn=knn)))
    ours = [v for v in as_printed.verdicts if v.claim.startswith("SimCLR")]
    assert [v.holds for v in ours] == [True, True, True]
    assert {v.holds for v in as_printed.verdicts if v not in ours} == {None}
    assert as_printed.tables[0].rows[1] == [
        *("SimCLR", "5e-3", "54.0", "0.1", "54.0 ± 0.5", "0.100 ± 0.001")
    ]
    other = {"norm": norm[::-1], "knn": [*knn[:4], 90]}
    turned = render("table1", Results(decays("SimCLR", unclipped=True, **other)))
    assert [v.holds for v in turned.verdicts[:3]] == [False, False, False]
    apart = decays("SimCLR", unclipped=True, norm=norm, knn=knn)
    job = next(job for job in apart if job.settings["weight_decay"] == 0.05)
    apart[job] = made([0, 4], knn=[1, 24.7], norm=[1, 0.0])
    assert render("table1", Results(apart)).verdicts[0].holds == "undecided", "one seed learns"


def test_table2() -> None:
    def share(early: float, late: float, far: float) -> dict[str, list[float]]:
        return {"opposite_halves": [early, late], "far_opposite": [far, 0.0]}

    def every(simclr: float, others: float, late: float, far: float, bare: float) -> Results:
        found = {}
        for name in CUT:
            early = simclr if name == "SimCLR" else others
            found |= over(named("cpu", f"{name} on cifar10"), [0, 8], **share(early, late, far))
        for name in ("SimSiam", "BYOL"):
            found |= over(
                named("cpu", f"{name}, heads with batch norm"), [0, 1], **share(others, 0, 0)
            )
            found |= over(
                named("cpu", f"{name}, heads without batch norm"), [0, 1], **share(bare, 0, 0)
            )
        return Results(found)

    as_printed = render("table2", every(0.05, 0.25, 0.01, 0.0, 0.1))
    assert {v.holds for v in as_printed.verdicts} == {True}
    assert len(as_printed.verdicts) == 5
    turned = render("table2", every(0.25, 0.05, 0.04, 0.001, 0.1))
    assert {v.holds for v in turned.verdicts} == {False}
    assert as_printed.tables[0].rows[0][2] == "2 (ImageNet-100), 11 (CIFAR-100)"


def test_table3() -> None:
    plain, small = (named("paper", f"BYOL{cut} on cifar10") for cut in ("", ", c = 9"))
    better = {"knn": [25, 26, 27]}
    for one, other, holds in ((plain, small, True), (small, plain, False)):
        found = over(one, [0, 100, 500], **better) | over(other, [0, 100, 500], knn=[25, 30, 31])
        shown = render("table3", Results(found), "paper")
        (told,) = [v for v in shown.verdicts if v.holds is not None]
        assert told.claim.startswith("BYOL")
        assert told.holds is holds
    assert "31 of 33" in shown.notes[0]  # all but BYOL on CIFAR-100 at 500 and Flowers at 100


def test_table4() -> None:
    def accuracies(gain: float) -> Results:
        found = {}
        for name in ("mocov2", "mocov3", "dino"):
            found |= over(named("paper", f"{name}, c = 1"), [100], knn=[40])
            found |= over(named("paper", f"{name}, c = 3"), [100], knn=[40 + gain])
        return Results(found)

    assert [v.holds for v in render("table4", accuracies(5), "paper").verdicts] == [
        True,
        True,
        False,
    ]
    assert [v.holds for v in render("table4", accuracies(-5), "paper").verdicts] == [
        False,
        False,
        True,
    ]


def test_table5_and_table6_as_printed() -> None:
    for name, method, data in (
        ("table5", "SimCLR", "cifar100"),
        ("table6", "SimSiam", "imagenet100"),
    ):
        table = printed("cosine-pitfalls", name)
        found = {
            job: made([100], knn=[value])
            for row, values in table.rows.items()
            for decay, value in zip(table.columns, values, strict=True)
            for job in named(
                "paper", f"{method}, c = {row.partition('=')[2]}, decay {decay} on {data}"
            )
        }
        assert len(found) == 48
        shown = render(name, Results(found), "paper")
        ours, theirs = shown.tables[::-1]
        assert ours.rows == [
            [job if i == 0 else f"{job} ± 0.0" for i, job in enumerate(line)]
            for line in theirs.rows
        ]
        holds = [v.holds for v in shown.verdicts]
        assert holds == ([True, False] if name == "table5" else [True, True, True])


def test_table6_turns() -> None:
    numbers = {
        "SimSiam, decay 5e-3": 30,
        "SimSiam, decay 5e-6": 35,
        "SimSiam, slow": 30,
        "SimSiam, slow, c = 9": 25,
        "SimSiam, slow, c = 9, decay 3.75e-2": 20,
    }
    found = {}
    for name, knn in numbers.items():
        found |= over(named("cpu", name), [4], knn=[knn])
    assert [v.holds for v in render("table6", Results(found)).verdicts] == [False, False, False]


@pytest.mark.parametrize(("factor", "holds"), [(2.0, True), (0.5, False)])
def test_figure3(factor: float, holds: bool) -> None:
    found = {}
    for name in ("attraction", "repulsion", "both"):
        found |= over(named("cpu", f"SimCLR, {name}"), [0, 1, 2], norm=[1, 1, factor])
    for name in CUT:
        found |= decays(name, norm=[0.1, 1, 1, 1, factor] if holds else [2, 1, 1, 1, factor])
    shown = render("figure3", Results(found))
    assert [v.holds for v in shown.verdicts] == [holds] * 8


def test_figure4() -> None:
    def space(clusters: float, opposite: float, poles: bool) -> Result:
        shares = {"opposite_halves": [0.3, opposite, 0.01], "far_opposite": [0.1, 0.1, 0.01]}
        rows = looks([0, 1, 16], clusters=[clusters] * 3, **shares)
        anchors = [[1.0, 0.1], [1.0, -0.1], [-1.0 if poles else 1.0, 0.0]]
        pairs = {"1": {"anchors": anchors, "positives": anchors}}
        return Result("latent", "x", {}, {"looks": rows, "pairs": pairs})

    def every(*numbers: tuple[float, float, bool]) -> Results:
        names = ("SimCLR", "BYOL", "BYOL, no batch norm")
        jobs = [
            (job, space(*own))
            for name, own in zip(names, numbers, strict=True)
            for job in named("cpu", f"latent {name}")
        ]
        return Results(dict(jobs))

    as_printed = render("figure4", every((0.2, 0, False), (0.9, 0.3, True), (0.9, 0.1, False)))
    assert [v.holds for v in as_printed.verdicts] == [True] * 4
    assert "33.3" in as_printed.verdicts[1].evidence
    turned = render("figure4", every((0.9, 0, False), (0.2, 0.1, False), (0.9, 0.3, False)))
    assert [v.holds for v in turned.verdicts] == [False, False, False, True]


def test_figure5() -> None:
    small = {name: ["1", str(c)] for name, c in CUT.items()} | {"SimCLR": ["1/3", "1", "3"]}

    def every(slope: float) -> Results:
        """Accuracies that rise with c, norms that fall with it, or the other way round."""
        found = {}
        for name, cuts in small.items():
            steep = 2 * slope if name != "SimCLR" else slope
            for place, own in enumerate(cuts):
                knn, norm = 30 + steep * place, 10 - slope * place
                found |= over(
                    named("cpu", f"{name}, slow, c = {own}"),
                    [0, 2, 4],
                    knn=[25, knn, knn],
                    norm=[norm] * 3,
                )
        return Results(found)

    for slope, holds in ((3.0, True), (-3.0, False)):
        shown = render("figure5", every(slope))
        assert [v.holds for v in shown.verdicts] == [holds] * 6
    assert said(shown, "degrades gracefully").evidence.startswith("SimCLR, c = 1/3: 30")
