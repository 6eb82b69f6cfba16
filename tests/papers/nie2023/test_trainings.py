"""Whether verdicts on trainings turn where the numbers turn."""

from collections.abc import Mapping, Sequence

import pytest

from isotrope.core.result import Result
from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.nie2023 import probes
from papers.nie2023.losses import MARGINS, longer, trained, with_margin
from papers.nie2023.table1 import BackboneScores
from papers.paper_numbers import printed
from tests.papers.nie2023.synthetic import artifact, curves, every, result, verdicts, words

ALL = [*probes.TRAIN, *probes.DEV]


def table1(changed: Mapping[str, tuple[float, float]] | None = None) -> dict[PaperJob, Result]:
    """Trainings that end with the paper's averages on BERT-base, a little different by seed."""
    rows = {
        k.partition("/")[2]: v
        for k, v in printed("align-uniform", "table1").rows.items()
        if k.startswith("bert-base/")
    }
    rows |= changed or {}
    made = {}
    for job in artifact("table1").jobs("cpu"):
        first = job.settings["ends"] == ["first"]
        sts, tr = rows["pretrained" if first else job.settings["objective"]]
        at, off = ("first", 0.0) if first else ("last", 0.1 * job.seed)
        made[job] = result({f"average {at}": float(sts) + off, f"transfer {at}": float(tr) + off})
    return made


def test_table_1_of_the_paper_s_own_numbers() -> None:
    """All of it, but what the table contradicts: DCL is below InfoNCE in transfer."""
    found = verdicts("table1", table1())
    assert [verdict.word for verdict in found] == [*["holds"] * 3, "fails", *["holds"] * 3]
    assert "DCL -1.20 ± 0.00" in found[3].evidence
    assert found[4].evidence == "DCL+ over DCL +4.12 ± 0.00; paper: +4.12"
    rows = artifact("table1").render("cpu", Results(table1())).tables[0].rows
    assert {row[-1] for row in rows} == {"-", "as in the paper"}


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"dcl": (50.0, 88.0)}, [0, 2]),
        ({"dcl": (77.0, 88.0)}, [1, 4]),
        ({"infonce": (79.0, 90.0)}, [3, 5]),
        ({"infonce": (76.0, 110.0), "dcl": (71.0, 110.0), "alignuniform": (72.0, 110.0)}, [2]),
        ({"mat": (72.0, 88.0), "dcl": (71.0, 88.0)}, [5, 6]),
        ({"dclplus": (70.0, 88.0), "dcl": (71.0, 88.0)}, [4]),
    ],
)
def test_table_1_turned(changed: Mapping[str, tuple[float, float]], failing: list[int]) -> None:
    found = words("table1", table1(changed))
    assert [i for i, word in enumerate(found) if word == "fails"] == failing


def test_rows_of_table_1_that_cannot_be_believed_support_no_verdict() -> None:
    assert BackboneScores("paper", Results(), "bert-large").margins == ("mpt",)
    assert BackboneScores("paper", Results(), "roberta-large").margins == ("mpt", "met", "mat")
    tables = artifact("table1").render("paper", Results()).tables
    assert [table.title for table in tables][1] == "bert-large"


def test_a_difference_within_the_deviation_decides_nothing() -> None:
    made = table1()
    for i, job in enumerate(trained("cpu", "dclplus")):
        made[job] = result({"average last": 71.2 + 5 * (i - 1), "transfer last": 87.0})
    assert words("table1", made)[4] == "undecided"


@pytest.mark.parametrize(
    ("curve", "word"),
    [
        ((3.0, 1.0, 2.0), "falls, then rises"),
        ((3.0, 1.0, 1.05), "falls and stays"),
        ((1.0, 2.0, 3.0), "rises"),
        ((2.0, 3.0, 2.0), "stays"),
        ((2.0, 2.0, 2.0), "stays"),
    ],
)
def test_courses(curve: Sequence[float], word: str) -> None:
    jobs = trained("cpu", "dcl")
    made = every(jobs, lambda job: result({}, curves(dev_contrastive=curve)))
    assert probes.course(Results(made), jobs, "dev contrastive") == word
    for one in made.values():  # and from what is far above before training
        one.details["looks"].insert(0, {"step": 0, "dev contrastive": 99.0})
    assert probes.course(Results(made), jobs, "dev contrastive") == word
    assert probes.course(Results(made), jobs, "dev uniformity") is None
    assert probes.course(Results(), jobs, "dev contrastive") is None


def test_a_rise_that_not_all_seeds_have_is_none() -> None:
    jobs = trained("cpu", "dcl")
    made = dict(
        zip(
            jobs,
            (result({}, curves(dev_contrastive=c)) for c in ((3, 1, 1), (3, 1, 1), (3, 1, 2))),
            strict=True,
        )
    )
    assert probes.course(Results(made), jobs, "dev contrastive") == "undecided"


def probed(name: str, **courses: Sequence[float]) -> list[str]:
    """Words where all probes but some fall and stay."""
    looks = {look.replace(" ", "_"): (3.0, 2.0, 1.0) for look in ALL} | courses
    made = every(artifact(name).jobs("cpu"), lambda job: result({}, curves(**looks)))
    return words(name, made)


def test_overfitting_is_told_from_training() -> None:
    down, again, up = (3.0, 2.0, 1.0), (3.0, 1.0, 2.0), (1.0, 2.0, 3.0)
    dev = {f"dev_{probe}": again for probe in probes.SYMBOLS}
    assert probed("figure1b") == ["holds", "holds"]
    assert probed("figure1b", dev_alignment=up) == ["holds", "fails"]
    assert probed("figure1b", dev_uniformity=again) == ["fails", "fails"]
    assert probed("figure1c") == ["fails", "holds", "holds"]
    assert probed("figure1c", **dev | {"dev_alignment": down}) == ["holds", "holds", "holds"]
    assert probed("figure1c", **dev, train_contrastive=again) == ["holds", "fails", "fails"]
    for name in ("figure1d", "figure3e"):
        assert probed(name) == ["fails", "holds"]
        assert probed(name, **dev) == ["holds", "holds"]
        assert probed(name, train_alignment=again) == ["fails", "fails"]
    assert probed("figure3d") == ["holds", "holds"]
    assert probed("figure3d", dev_contrastive=again) == ["fails", "fails"]


def ends(small: Mapping[str, float]) -> dict[PaperJob, Result]:
    """MPT at .23 ends with ones, and at .10 with these and ones."""
    ones = dict.fromkeys(ALL, 1.0)
    made = every(with_margin("cpu", MARGINS[1]), lambda job: result({}, [ones]))
    return made | every(with_margin("cpu", MARGINS[0]), lambda job: result({}, [{**ones, **small}]))


def test_too_small_a_margin() -> None:
    higher = {look: 2.0 for look in ALL if "alignment" not in look}
    assert words("figure3c", ends(higher)) == ["holds", "holds"]
    assert words("figure3c", ends({**higher, "dev contrastive": 0.5})) == ["fails", "holds"]
    narrow = {**higher, "train alignment": -3.0}
    assert words("figure3c", ends(narrow)) == ["holds", "fails"]


def gaps(**by_loss: tuple[float, float, float]) -> dict[PaperJob, Result]:
    made = {}
    for name in ("infonce", "alignuniform", "dcl"):
        looks = [{"train distance gap": gap} for gap in by_loss.get(name, (0.2, 0.6, 0.6))]
        made |= every(trained("cpu", name), lambda job, looks=looks: result({}, looks))
    return made


def test_distance_gaps() -> None:
    wide = {"alignuniform": (0.2, 0.8, 0.9), "dcl": (0.2, 0.7, 1.0)}
    assert words("figure3b", gaps(**wide)) == ["holds", "holds"]
    assert words("figure3b", gaps(**{**wide, "dcl": (0.2, 0.7, 0.7)})) == ["holds", "undecided"]
    assert words("figure3b", gaps(**{**wide, "dcl": (0.2, 0.7, 0.65)})) == ["holds", "fails"]
    assert words("figure3b", gaps(**wide, infonce=(0.2, 0.9, 0.95))) == ["fails", "holds"]


def margins(*ends: tuple[float, float, float]) -> dict[PaperJob, Result]:
    """Gap, STS and transfer of three margins."""
    made = {}
    for margin, (gap, sts, tr) in zip(MARGINS, ends, strict=True):
        for job in with_margin("cpu", margin):
            scores = {"average last": sts + job.seed, "transfer last": tr + job.seed}
            made[job] = result(scores, [{"train distance gap": gap}])
    return made


def test_scores_over_the_gap() -> None:
    peak = margins((0.4, 70.0, 80.0), (0.6, 75.0, 80.5), (0.9, 68.0, 81.0))
    assert words("figure3a", peak) == ["holds", "holds", "holds"]
    flat = margins((0.4, 70.0, 80.0), (0.6, 75.0, 84.0), (0.9, 68.0, 81.0))
    assert words("figure3a", flat) == ["holds", "holds", "fails"]
    last = margins((0.4, 70.0, 80.0), (0.3, 75.0, 80.0), (0.9, 76.0, 80.0))
    assert words("figure3a", last) == ["fails", "fails", "holds"]


def path(*places: tuple[float, float, float]) -> Result:
    sets = [{"dev set": {"uniformity": u, "alignment": a}, "dev": dev} for u, a, dev in places]
    return result({}, sets)


def paths(behind: float, *, aside: float = 0.0, late: float = 75.0) -> list[str]:
    """InfoNCE, and decoupled losses that come by beside it with another score."""
    own = [(-0.5, 0.1, 60.0), (-1.5, 0.2, 75.0), (-2.0, 0.3, late)]
    other = [own[0], *((u, a + aside, score - behind) for u, a, score in own[1:])]
    made = every(longer("cpu", "infonce"), lambda job: path(*own))
    for name in ("alignuniform", "dcl"):
        made |= every(longer("cpu", name), lambda job: path(*other, (-3.0, 0.5, 50.0)))
    return words("figure1a", made)


def test_places_do_not_tell_scores() -> None:
    assert paths(3.0)[:2] == ["holds", "holds"]
    assert paths(-3.0)[:2] == ["fails", "holds"]
    assert paths(3.0, aside=0.2)[:2] == ["fails", "holds"]  # nothing to compare with


def test_places_must_match_in_every_seed() -> None:
    made = every(longer("cpu", "infonce"), lambda job: path((-0.5, 0.1, 60.0), (-1.5, 0.2, 75.0)))
    for name in ("alignuniform", "dcl"):
        for job in longer("cpu", name):
            far = 0.2 * (name == "dcl" and job.seed == 2)
            made[job] = path((-0.5, 0.1, 60.0), (-1.5, 0.2 + far, 70.0), (-3.0, 0.5, 50.0))
    verdict = verdicts("figure1a", made)[0]
    assert verdict.word == "fails"
    assert verdict.evidence.endswith("seeds with such places: 3 of 3, 2 of 3")


def test_scores_that_fall_again() -> None:
    assert paths(3.0)[2:] == ["holds", "holds"]
    assert paths(3.0, late=60.0)[2:] == ["holds", "holds"]  # by 15, and by 22 to an end at 50
    assert paths(24.0, late=60.0)[2:] == ["fails", "holds"]  # by 15, and by 10
    assert paths(3.0, late=49.0)[2:] == ["fails", "fails"]
