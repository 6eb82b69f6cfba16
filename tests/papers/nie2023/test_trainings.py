"""Whether verdicts on trainings turn where the numbers turn."""

from collections.abc import Mapping, Sequence

import pytest

from isotrope.core import Result
from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.nie2023 import probes
from papers.nie2023.losses import MARGINS, trained, with_margin
from tests.papers.nie2023.synthetic import artifact, curves, every, result, words

ALL = [*probes.TRAIN, *probes.DEV]


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
    again, up = (3.0, 1.0, 2.0), (1.0, 2.0, 3.0)
    assert probed("figure3d") == ["replicated", "replicated"]
    assert probed("figure3d", dev_contrastive=again) == ["contradicted", "contradicted"]
    assert probed("figure3d", dev_alignment=up) == ["replicated", "replicated"]


def ends(small: Mapping[str, float]) -> dict[PaperJob, Result]:
    """MPT at .23 ends with ones, and at .10 with these and ones."""
    ones = dict.fromkeys(ALL, 1.0)
    made = every(with_margin("cpu", MARGINS[1]), lambda job: result({}, [ones]))
    return made | every(with_margin("cpu", MARGINS[0]), lambda job: result({}, [{**ones, **small}]))


def test_too_small_a_margin() -> None:
    higher = {look: 2.0 for look in ALL if "alignment" not in look}
    assert words("figure3c", ends(higher)) == ["replicated", "replicated"]
    assert words("figure3c", ends({**higher, "dev contrastive": 0.5})) == [
        "contradicted",
        "replicated",
    ]
    narrow = {**higher, "train alignment": -3.0}
    assert words("figure3c", ends(narrow)) == ["replicated", "contradicted"]


def gaps(**by_loss: tuple[float, float, float]) -> dict[PaperJob, Result]:
    made = {}
    for name in ("infonce", "alignuniform", "dcl"):
        looks = [{"train distance gap": gap} for gap in by_loss.get(name, (0.2, 0.6, 0.6))]
        made |= every(trained("cpu", name), lambda job, looks=looks: result({}, looks))
    return made


def test_distance_gaps() -> None:
    wide = {"alignuniform": (0.2, 0.8, 0.9), "dcl": (0.2, 0.7, 1.0)}
    assert words("figure3b", gaps(**wide)) == ["replicated", "replicated"]
    assert words("figure3b", gaps(**{**wide, "dcl": (0.2, 0.7, 0.7)})) == [
        "replicated",
        "undecided",
    ]
    assert words("figure3b", gaps(**{**wide, "dcl": (0.2, 0.7, 0.65)})) == [
        "replicated",
        "contradicted",
    ]
    assert words("figure3b", gaps(**wide, infonce=(0.2, 0.9, 0.95))) == [
        "contradicted",
        "replicated",
    ]
