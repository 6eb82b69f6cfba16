"""claims.toml holds together, its effects are the printed numbers', and claims are decided."""

from collections import Counter
from statistics import mean

import pytest
from scipy.stats import sem, t

from papers.machinery.claims import Claim, claims, differences, judge_claim
from papers.paper_numbers import printed

BASE = {"id": "x", "paper": "p", "where": "w", "says": "s", "a": ("a",), "metric": "average"}


def number(path: str) -> float:
    paper, table, *row, column = path.split("/")
    held = printed(paper, table)
    return float(held.rows["/".join(row)][held.columns.index(column)])


def test_an_effect_is_the_sum_of_the_printed_numbers_it_names():
    with_numbers = [claim for claim in claims() if claim.printed]
    assert len(with_numbers) > 60
    for claim in with_numbers:
        own = sum(factor * number(path) for factor, path in claim.printed)
        assert claim.effect == pytest.approx(own, abs=0.0051), claim.id


def test_a_comparison_stands_there_once():
    asked = [(c.where, c.a, c.b, c.metric, bool(c.untestable)) for c in claims()]
    assert not [which for which, count in Counter(asked).items() if count > 1]


def test_numbers_that_are_not_printed_have_a_sign_alone():
    assert {c.effect for c in claims() if c.interest is not None} == {1.0, -1.0}


def test_differences_are_of_means_over_the_seeds_that_all_have():
    claim = Claim(**{**BASE, "a": ("a", "b"), "b": ("c",)}, effect=1.0, printed=((1, "n"),))
    values = {"a": {1: 2.0, 2: 4.0, 3: 0.0}, "b": {1: 4.0, 2: 8.0}, "c": {1: 1.0, 2: 1.0, 3: 1.0}}
    assert differences(claim, lambda name, metric: values[name]) == {1: 2.0, 2: 5.0}
    alone = Claim(**BASE, margin=1.0, why="one")
    assert differences(alone, lambda name, metric: values["a"]) == values["a"]
    assert differences(claim, lambda name, metric: {}) == {}


def test_a_claim_is_decided_by_its_own_kind():
    near = {"a": {1: 3.0, 2: 3.1}, "b": {1: 1.0, 2: 1.0}}

    def measured(name: str, metric: str) -> dict[int, float]:
        return near[name]

    two = {**BASE, "b": ("b",)}
    assert judge_claim(Claim(**two, effect=4.0, printed=((1, "n"),)), measured).word == "replicated"
    assert judge_claim(Claim(**two, effect=-4.0, printed=((1, "n"),)), measured).word == "opposite"
    shown = judge_claim(Claim(**two, effect=4.0, printed=((1, "n"),), untested="-"), measured)
    assert (shown.word, shown.change.count) == ("not tested", 2)
    assert judge_claim(Claim(**two, effect=1.0, interest=3.0, why="-"), measured).word == (
        "same direction, uncertain size"
    )
    assert judge_claim(Claim(**two, margin=0.5, why="-"), measured).word == "replicated"
    assert judge_claim(Claim(**two, margin=0.5, above=True, why="-"), measured).word == "opposite"
    over = judge_claim(Claim(**two, margin=3.0, above=True, why="-"), measured)
    assert over.word == "replicated"
    assert over.change is not None
    assert over.change.mean == pytest.approx(2.05), "shown as it is, whatever side counts"
    away = Claim(**two, effect=4.0, printed=((1, "n"),), untestable="no weights")
    assert judge_claim(away, measured).word == "not testable here"


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values, start=1))


def test_a_claim_that_five_seeds_leave_undecided_is_judged_once_more_on_fifteen():
    claim = Claim(**BASE, effect=4.0, printed=((1, "n"),))
    unclear, clear = (3.0, -3.0, 3.0, -2.0, 3.0), (2.0, 2.2) * 5

    def judged(*values: float):
        return judge_claim(claim, lambda name, metric: seeds(*values))

    few = judged(*unclear, *clear[:9])
    assert (few.word, few.level, few.change.count) == ("undecided", 0.9, 5), "not in between"
    all_ = judged(*unclear, *clear, 100.0)
    assert (all_.word, all_.level, all_.change.count) == (
        "same direction, uncertain size",
        0.95,
        15,
    )
    values = [*unclear, *clear]
    half = sem(values) * t.ppf(0.975, 14)
    assert all_.interval == pytest.approx((mean(values) - half, mean(values) + half))
    decided = judged(*[2.0] * 5, *[-9.0] * 10)
    assert (decided.word, decided.change.count) == ("replicated", 5), "the first look stands"
    still = judged(*[3.0, -3.0] * 8)
    assert (still.word, still.change.count) == ("undecided", 15)


def test_every_claim_can_be_decided():
    """It has an effect or a margin; printed numbers or an interest, which says where it is from."""
    names: list[str] = []
    for claim in claims():
        assert claim.on in ("text", "images")
        assert (claim.effect is None) != (claim.margin is None), claim.id
        assert claim.effect is None or bool(claim.printed) == (claim.interest is None), claim.id
        assert claim.why or (claim.interest is None and claim.margin is None), claim.id
        names.append(claim.id)
    assert len(set(names)) == len(names)
    assert {claim.follows for claim in claims()} <= {"", *names}
