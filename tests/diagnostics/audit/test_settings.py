"""The table of settings is the objective's own anatomy, and the rules choose from it."""

import numpy as np
import pytest
import torch

from isotrope.core.views import Views
from isotrope.diagnostics.audit.rows import HardNegatives
from isotrope.diagnostics.audit.settings import GRID, Setting, recommend, settings_table
from isotrope.diagnostics.observe import measure
from isotrope.objectives.dcl import DCL
from isotrope.objectives.infonce import InfoNCE
from isotrope.objectives.modified import ModifiedMHE
from isotrope.objectives.triplet import MPT
from isotrope.paradigm.forms import Symmetric
from tests.diagnostics.audit.handmade import embedded, of


@pytest.mark.parametrize(
    "objective", [InfoNCE(), MPT(), ModifiedMHE()], ids=lambda objective: objective.name
)
def test_a_line_of_the_table_is_the_anatomy_of_its_batch(objective) -> None:
    rows = embedded(32, noise=1.5)
    double = of(rows.anchors.double(), rows.positives.double())
    table = settings_table(double, objective, batch_size=32)
    own = [line for line in table if line.own]
    assert {line.name for line in own} == {"batch size", *set(GRID) & set(vars(objective))}
    numbers = measure(objective, double.batch(torch.arange(32)))
    for line in own:
        assert line.solved == pytest.approx(numbers["dead"], abs=1e-12)
        for name in ("dissipation", "hardest_share", "above_bound"):
            assert getattr(line, name) == pytest.approx(numbers[name], abs=1e-12)


def test_the_hard_negatives_of_a_batch_are_in_it() -> None:
    rows = embedded(32, noise=1.5)
    hard = rows.anchors + 0.1 * rows.positives.flip(0)  # nearer than the positives
    own = np.arange(96, dtype=np.uint64).reshape(32, 3)
    marks = (np.stack([own[:, 2]] * 2), np.stack([own[:, :2]] * 2))
    negatives = HardNegatives(hard, np.arange(32), *marks)
    with_hard = of(rows.anchors, rows.positives, hard=negatives)
    own = [line for line in settings_table(with_hard, InfoNCE(), batch_size=32) if line.own]
    numbers = measure(InfoNCE(), Views(rows.anchors, rows.positives, hard))
    (without,) = {
        line.dissipation for line in settings_table(rows, InfoNCE(), batch_size=32) if line.own
    }
    for line in own:
        assert line.dissipation == pytest.approx(numbers["dissipation"], abs=1e-5)
        assert line.dissipation > without + 0.2


def test_batch_sizes_stay_within_the_rows() -> None:
    table = settings_table(embedded(100), InfoNCE(), batch_size=64)
    assert [line.value for line in table if line.name == "batch size"] == [16, 64, 100]
    assert [line.value for line in settings_table(embedded(3), InfoNCE(), batch_size=64)][:2] == [
        2,
        3,
    ]


def test_a_lower_temperature_gives_the_hardest_more_and_leaves_fewer_live() -> None:
    lines = settings_table(embedded(noise=2.0), InfoNCE(), batch_size=64)
    temperatures = [line for line in lines if line.name == "temperature"]
    shares = [line.hardest_share for line in temperatures]
    assert shares == sorted(shares, reverse=True)
    done = [line.solved for line in temperatures]
    assert done == sorted(done, reverse=True)
    assert done[0] > 0.3 > done[-1]
    (chosen,) = recommend(lines)
    assert chosen.value == min(line.value for line in temperatures if line.solved <= 0.3)


def line(name: str, value: float, *, solved: float = 0.1, above: float | None = 1.0) -> Setting:
    return Setting(name, value, 64, 1 - solved, solved, 0.5, above, own=False)


def test_a_temperature_that_only_weights_is_not_recommended() -> None:
    lines = settings_table(embedded(noise=2.0), ModifiedMHE(), batch_size=64)
    assert "temperature" in {line.name for line in lines}
    assert [each.name for each in recommend(lines)] == ["margin", "ratio"]


def test_rules_of_margin_and_ratio() -> None:
    shares = {0.1: 0.9, 0.2: 0.3, 0.3: 0.1}
    margins = [line("margin", value, solved=share) for value, share in shares.items()]
    ratios = [line("ratio", 0.5, above=0.9), line("ratio", 1.0, above=0.96), line("ratio", 2.0)]
    found = {each.name: each for each in recommend([*margins, *ratios])}
    assert (found["margin"].value, found["ratio"].value) == (0.2, 1.0)
    none = recommend([line("margin", 0.1, solved=0.9), line("margin", 0.2, solved=0.8)])
    assert (none[0].value, none[0].reason[:14]) == (0.2, "at every value")
    unknown = recommend([line("ratio", 1.0, above=None)])
    assert unknown[0].value == 1.0


def test_nothing_is_recommended_where_no_anchor_has_a_negative() -> None:
    same = torch.ones(8, 4)
    groups = torch.zeros(8, dtype=torch.long)
    table = settings_table(of(same, same, groups=groups), InfoNCE(), batch_size=4)
    assert {line.dissipation for line in table} == {None}
    assert recommend(table) == []


def test_of_both_directions_the_same_settings_are_varied() -> None:
    rows = embedded(64)
    both = settings_table(rows, Symmetric(objective=InfoNCE()), batch_size=32)
    one = settings_table(rows, InfoNCE(), batch_size=32)
    assert [(line.name, line.value, line.own) for line in both] == [
        (line.name, line.value, line.own) for line in one
    ]
    assert recommend(both)[0].value == recommend(one)[0].value


def test_a_margin_is_recommended_where_all_anchors_are_live_at_every_one() -> None:
    alike = embedded(64)
    near = of(alike.anchors / 100 + 1, alike.positives / 100 + 1)
    table = settings_table(near, MPT(), batch_size=32)
    assert {row.dissipation for row in table if row.name == "margin"} == {1.0}
    assert [(each.name, each.value) for each in recommend(table)] == [("margin", 0.05)]


def test_nothing_is_recommended_where_the_temperature_changes_no_dissipation() -> None:
    table = settings_table(embedded(64), DCL(), batch_size=32)
    assert recommend(table) == []
