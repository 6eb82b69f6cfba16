"""Figures 1 and 2 and the checks: computed where they are shown."""

import math

import pytest

from papers.draganov2024 import check_opposite, check_theorem, figure1, figure2
from papers.machinery.artifact import Results
from tests.papers.draganov2024.synthetic import said


def test_figure1_is_what_the_corollary_says() -> None:
    shown = figure1.render("smoke", Results())
    assert shown.verdicts[0].holds
    # an angle of 120 degrees at norm 1, a step of 1
    assert shown.tables[0].rows[1] == ["1", f"{math.sqrt(1 + 0.75):.6f}", f"{math.sqrt(1.75):.6f}"]
    assert shown.pictures["figure1"]().png.startswith(b"\x89PNG")


def test_figure2_beside_the_notebook() -> None:
    shown = figure2.render("smoke", Results())
    steps, slowdowns = shown.tables
    for _, theirs, ours, at_least in steps.rows:
        assert theirs is not None
        assert ours is not None
        assert at_least is not None
        assert abs(int(theirs) - int(ours)) <= 2
        assert int(at_least) <= int(ours)
    assert [v.holds for v in shown.verdicts] == [True, True, True]
    assert slowdowns.rows[0][1:] == ["100", None]  # norms of 10 are not drawn at this scale
    assert shown.pictures["figure2"]().svg.startswith(b"<?xml")


def test_figure2_fails_where_norms_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    norms, angles = figure2.simulated("smoke")
    flat = [type(end)(end.start, end.angle, 96, end.cosine, 1.0, 97) for end in norms]
    monkeypatch.setattr(figure2, "simulated", lambda scale: (flat, [angles[1]] * 3))
    assert [v.holds for v in figure2.render("smoke", Results()).verdicts] == [False, False, False]


def test_the_theorem_and_its_counter_examples() -> None:
    shown = check_theorem.render("smoke", Results())
    assert [v.holds for v in shown.verdicts] == [True, False, False, False, True, False, True]
    broken = check_theorem.steps(2000)
    assert broken["as printed, acute angles"][0] == broken["corrected for obtuse angles"][0] == 0
    assert broken["as printed, obtuse angles"][0] / broken["as printed, obtuse angles"][1] > 0.8
    assert 0.7 < broken["as printed, step without unit vectors"][0] / 2000 < 0.8
    errors = check_theorem.gradients()
    assert all((error < 1e-12) == name.endswith("corrected") for name, error in errors.items())
    gained = check_theorem.progress(*_case(2.5), 0.1)
    assert f"{float(gained.left):.4f}" == "0.0771"
    assert f"{2 * 0.1 * math.sin(2.5) ** 2:.4f}" == "0.0716"
    assert shown.pictures["check-theorem"]().svg.startswith(b"<?xml")


def _case(phi: float):
    import torch

    return torch.tensor(phi, dtype=torch.float64), 1.0


def test_footnote_four_claims_nothing() -> None:
    shown = check_theorem.render("smoke", Results())
    near, *_, far = shown.tables[2].rows
    assert float(near[1] or 0) > 0.9 > 0.3 > float(far[1] or 0)
    assert not any("footnote" in v.claim or "push" in v.claim for v in shown.verdicts)


def test_opposite_halves_of_random_directions() -> None:
    shown = check_opposite.render("smoke", Results())
    assert [v.holds for v in shown.verdicts] == [True, True, True]
    assert shown.tables[0].rows[0][2] == "0.13"  # 1/8 of the circle
    assert said(shown, "bound").evidence.startswith("broken in 0 of 80")
    assert shown.pictures["check-opposite"]().svg.startswith(b"<?xml")
