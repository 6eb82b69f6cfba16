"""The one rule: Student's interval by hand, and every verdict from both sides of its border."""

import math

import pytest

from papers.machinery.rule import interval, judge, judge_not_behind

T4 = 2.1318467863266495  # 95% quantile of Student's t with 4 degrees of freedom
T1 = 6.313751514675043  # with 1


def around(mean: float, half: float) -> list[float]:
    """Five differences whose 90% interval is mean -+ half: deviations -1, -1, 0, 1, 1 times s."""
    s = half * math.sqrt(5) / T4
    return [mean + s * d for d in (-1.0, -1.0, 0.0, 1.0, 1.0)]


def test_the_interval_is_students_at_90_percent():
    assert interval([1.0, 3.0]) == pytest.approx((2 - T1, 2 + T1))
    assert interval(around(5.0, 0.25)) == pytest.approx((4.75, 5.25))
    assert interval([2.0] * 5) == (2.0, 2.0)
    assert interval([1.0, 2.0, 3.0], level=0.95) == pytest.approx(
        (2 - 4.302652729911275 / math.sqrt(3), 2 + 4.302652729911275 / math.sqrt(3))
    )


def test_an_interval_of_one_value_does_not_exist():
    with pytest.raises(ValueError, match="needs two values or more; found 1"):
        interval([1.0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("mean", "half", "word"),
    [
        (2.0, 0.99, "replicated"),  # 1.01 to 2.99; of interest is 1
        (2.0, 1.01, "same direction, weaker"),  # 0.99 to 3.01
        (0.5, 0.49, "same direction, weaker"),  # 0.01 to 0.99: above 0, though not of interest
        (0.5, 0.51, "undecided"),  # -0.01 to 1.01
        (0.0, 1.01, "undecided"),
        (0.0, 0.99, "contradicted"),  # an effect of interest is excluded
        (-2.0, 0.5, "contradicted"),
    ],
)
def test_a_verdict_is_where_the_interval_lies(sign: float, mean: float, half: float, word: str):
    found = judge([sign * d for d in around(mean, half)], sign * 4.0)
    assert found.word == word
    assert found.mean == pytest.approx(sign * mean)
    assert (found.low, found.high) == pytest.approx((sign * mean - half, sign * mean + half))
    assert (found.count, found.interest) == (5, sign * 1.0)


def test_the_end_of_the_interval_belongs_to_it():
    assert judge([1.0] * 5, 4.0).word == "replicated"
    assert judge([0.0] * 5, 4.0).word == "contradicted"


def test_an_interest_may_be_given_where_no_number_is_printed():
    assert judge(around(2.0, 0.5), 1.0, interest=1.4).word == "replicated"
    assert judge(around(2.0, 0.7), 1.0, interest=1.4).word == "same direction, weaker"
    assert judge(around(2.0, 0.5), -1.0, interest=1.4).word == "contradicted"


@pytest.mark.parametrize("differences", [[], [7.0]])
def test_fewer_than_two_seeds_decide_nothing(differences: list[float]):
    found = judge(differences, 1.0)
    assert (found.word, found.low, found.high) == ("undecided", None, None)
    assert found.mean == (7.0 if differences else None)


@pytest.mark.parametrize(
    ("mean", "half", "word"),
    [
        (0.0, 0.99, "replicated"),  # -0.99 to 0.99, and the margin is 1
        (3.0, 1.0, "replicated"),
        (0.0, 1.01, "undecided"),
        (-2.0, 1.01, "undecided"),
        (-2.0, 0.99, "contradicted"),
    ],
)
def test_not_behind_is_judged_against_minus_the_margin(mean: float, half: float, word: str):
    found = judge_not_behind(around(mean, half), 1.0)
    assert (found.word, found.interest) == (word, -1.0)


def test_a_comparison_without_a_direction_is_refused():
    with pytest.raises(ValueError, match="an effect with a sign and an interest above 0; found 0"):
        judge([1.0, 2.0], 0.0)
    with pytest.raises(ValueError, match="found 1 and 0"):
        judge([1.0, 2.0], 1.0, interest=0.0)
    with pytest.raises(ValueError, match="is above 0; found -1"):
        judge_not_behind([1.0, 2.0], -1.0)
