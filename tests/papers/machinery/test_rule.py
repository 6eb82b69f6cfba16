"""The one rule: Student's interval by hand, and every verdict from both sides of its border."""

import math

import pytest

from papers.machinery.rule import judge, judge_not_behind
from papers.machinery.verdicts import spread

T4 = 2.1318467863266495  # 95% quantile of Student's t with 4 degrees of freedom


def around(mean: float, half: float, sign: float = 1.0) -> dict[int, float]:
    """Five differences whose 90% interval is mean -+ half: deviations -1, -1, 0, 1, 1 times s."""
    s = half * math.sqrt(5) / T4
    return {i: sign * (mean + s * d) for i, d in enumerate((-1.0, -1.0, 0.0, 1.0, 1.0))}


def alike(value: float) -> dict[int, float]:
    return dict.fromkeys(range(5), value)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("mean", "half", "word"),
    [
        (2.0, 0.99, "replicated"),  # 1.01 to 2.99; of interest is 1
        (2.0, 1.01, "same direction, uncertain size"),  # 0.99 to 3.01
        (0.5, 0.49, "same direction, uncertain size"),  # 0.01 to 0.99: not of interest
        (0.5, 0.51, "undecided"),  # -0.01 to 1.01
        (0.0, 1.01, "undecided"),
        (0.0, 0.99, "smaller than a quarter"),  # an effect of interest is excluded
        (-0.5, 0.51, "smaller than a quarter"),  # -1.01 to 0.01
        (-0.5, 0.49, "opposite"),
    ],
)
def test_a_verdict_is_where_the_interval_lies(sign: float, mean: float, half: float, word: str):
    found = judge(around(mean, half, sign), sign * 4.0)
    assert found.word == word
    assert found.change is not None
    assert found.change.mean == pytest.approx(sign * mean)
    assert found.change.interval == pytest.approx((sign * mean - half, sign * mean + half))
    assert (found.change.count, found.interest) == (5, sign * 1.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("mean", "half"), [(0.5, 0.51), (0.5, 0.7), (1.5, 1.6), (-0.5, 1.6)])
def test_an_undecided_claim_says_how_many_seeds_would_decide_it(
    sign: float, mean: float, half: float
):
    effects = around(mean, half, sign)
    needed = judge(effects, sign * 4.0).seeds
    assert needed is not None

    def word(count: int) -> str:
        """Of so many seeds with the same mean and deviation: half of them on either side of it."""
        deviation = spread(effects).deviation
        ends = [(-1) ** i * (i < 2 * (count // 2)) for i in range(count)]
        scale = deviation * math.sqrt((count - 1) / sum(abs(end) for end in ends))
        return judge({i: sign * mean + scale * end for i, end in enumerate(ends)}, sign * 4.0).word

    assert word(needed) != "undecided"
    assert word(needed - 1) == "undecided"


def test_what_is_decided_or_would_take_too_many_seeds_has_no_number_of_them():
    assert judge(around(2.0, 0.99), 4.0).seeds is None
    assert judge(around(0.5, 20.0), 4.0).seeds is None
    assert judge({1: 7.0}, 4.0).seeds is None
    behind = judge_not_behind(around(-0.5, 0.6), 1.0)
    assert (behind.word, behind.seeds) == ("undecided", 7)


def test_the_end_of_the_interval_belongs_to_it():
    assert judge(alike(1.0), 4.0).word == "replicated"
    assert judge(alike(0.0), 4.0).word == "smaller than a quarter"


def test_an_interest_may_be_given_where_no_number_is_printed():
    assert judge(around(2.0, 0.5), 1.0, interest=1.4).word == "replicated"
    assert judge(around(2.0, 0.7), 1.0, interest=1.4).word == "same direction, uncertain size"
    assert judge(around(2.0, 0.5), -1.0, interest=1.4).word == "opposite"


def test_fewer_than_two_seeds_decide_nothing():
    assert judge({}, 1.0).word == judge({1: 7.0}, 1.0).word == "undecided"
    assert judge({}, 1.0).change is None


@pytest.mark.parametrize(
    ("mean", "half", "word"),
    [
        (0.0, 0.99, "replicated"),  # -0.99 to 0.99, and the margin is 1
        (3.0, 1.0, "replicated"),
        (0.0, 1.01, "undecided"),
        (-2.0, 1.01, "undecided"),
        (-2.0, 0.99, "opposite"),
    ],
)
def test_not_behind_is_judged_against_minus_the_margin(mean: float, half: float, word: str):
    found = judge_not_behind(around(mean, half), 1.0)
    assert (found.word, found.interest) == (word, -1.0)


def test_a_comparison_without_a_direction_is_refused():
    with pytest.raises(ValueError, match="an effect with a sign and an interest above 0; found 0"):
        judge({1: 1.0, 2: 2.0}, 0.0)
    with pytest.raises(ValueError, match="found 1 and 0"):
        judge({1: 1.0, 2: 2.0}, 1.0, interest=0.0)
    with pytest.raises(ValueError, match="is above 0; found -1"):
        judge_not_behind({1: 1.0, 2: 2.0}, -1.0)
