"""Figures 1 and 2 and the checks: computed where they are shown."""

import math

import pytest

from papers.draganov2024 import figure1, figure2
from papers.machinery.artifact import Results


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
    flat = [type(end)(end.start, end.angle, 96, 97) for end in norms]
    monkeypatch.setattr(figure2, "simulated", lambda scale: (flat, [angles[1]] * 3))
    assert [v.holds for v in figure2.render("smoke", Results()).verdicts] == [False, False, False]
