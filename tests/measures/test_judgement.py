"""The judgement on a training: three outcomes and their words, by the paired bootstrap."""

import io
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.measures.judgement import (
    DevEvaluation,
    DevHistory,
    Judgement,
    judge,
    judgement_of,
)

NAME = "dev MRR@10"


def hits(n: int, share: float) -> DevEvaluation:
    """Of n queries the first share finds its answer."""
    items = (np.arange(n) < share * n).astype(float)
    return DevEvaluation(100 * items.mean(), items)


def history(*shares: float, n: int = 400, saved: str = "best") -> DevHistory:
    """A run scored every 10 steps."""
    found = DevHistory(NAME, saved)  # type: ignore[arg-type]
    for i, share in enumerate(shares):
        found.add(10 * i, hits(n, share))
    return found


def pairs(shift: float, noise: float, size: int = 1_500) -> list[DevEvaluation]:
    """Scores of pairs before and after, as two models that nearly agree give them."""
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 26, size) / 5
    before = gold + rng.normal(size=size)
    after = before + noise * rng.normal(size=size) - shift * (gold - gold.mean())
    return [DevEvaluation(100 * spearmanr(x, gold).statistic, x, gold) for x in (before, after)]


@pytest.mark.parametrize(("n", "outcome"), [(1, "undecided"), (4, "undecided"), (20, "improved")])
def test_a_dev_set_of_a_few_examples_shows_nothing(n: int, outcome: str) -> None:
    """Resamples of one example, or of a few that all rose, do not differ."""
    assert judge(history(0.0, 1.0, n=n)).outcome == outcome


@pytest.mark.parametrize(("changed", "outcome"), [(4, "undecided"), (12, "improved")])
def test_a_few_changes_among_many_examples_show_nothing(changed: int, outcome: str) -> None:
    """Four of 1,000, all to one side: by chance one time in eight."""
    told = judge(history(0.5, 0.5 + changed / 1_000, n=1_000))
    assert told.outcome == outcome
    assert told.numbers["saved"]["changed"] == changed
    assert ("p is 0.125: only 4 independent scores changed" in told.sentence) == (changed == 4)


def test_noise_after_a_high_start_says_why() -> None:
    high, low = history(0.84, 0.87, n=100), history(0.5, 0.51, n=100)
    for found in (high, low):
        found.name = "held-out MRR@10 of 100 queries among 98 texts"
    assert "so easy a search can hide a gain" in judge(high).sentence
    assert "can hide" not in judge(low).sentence
    high.name = "held-out Spearman of 100 pairs"
    assert "search" not in judge(high).sentence


def test_a_fall_of_an_eighth_of_a_point_on_1500_pairs_is_within_noise() -> None:
    found = DevHistory("dev STS Spearman (dev.tsv)")
    before, after = pairs(0.0, 0.1)
    assert -0.2 < after.value - before.value < -0.05
    found.add(0, before)
    found.add(40, after)
    told = judge(found)
    assert told.outcome == "undecided"
    assert told.sentence.startswith(
        f"undecided: dev STS Spearman (dev.tsv) was {before.value:.2f} at the start and "
        f"{after.value:.2f} at step 40 ("
    )
    assert told.sentence.endswith("; the saved model is the one before training")
    low, high = told.numbers["last"]["low"], told.numbers["last"]["high"]
    assert low < after.value - before.value < 0 < high


def test_a_fall_beyond_noise_is_worse() -> None:
    before, after = pairs(0.3, 0.1)
    found = DevHistory("dev STS")
    found.add(0, before)
    found.add(40, after)
    told = judge(found)
    assert told.outcome == "worse"
    assert told.sentence.startswith("training made the model worse: dev STS was ")
    assert told.numbers["last"]["p"] < 0.05
    assert told.numbers["saved"] == {"step": 0, "score": before.value}


def test_two_scores_leave_no_step_to_choose() -> None:
    found = history(0.5, 0.7)
    assert judge(found).sentence.endswith("; this step was saved)")
    found.saved = "trained"  # the weights that are saved may be the mean of two trainings
    assert judge(found).sentence.endswith("; the last step)")


def test_a_stored_history_has_all_scores(tmp_path: Path) -> None:
    found = history(0.5, 0.6, 0.7, 0.65)
    found.save(tmp_path / "dev.npz")
    read = DevHistory.load(tmp_path / "dev.npz")
    assert read.scores == found.scores
    assert len(read.evaluations) == 3
    assert judge(read) == judge(found)


def test_the_saved_step_is_judged_and_not_the_last() -> None:
    told = judge(history(0.5, 0.7, 0.6))
    assert told.outcome == "improved"
    assert told.sentence.startswith(
        f"training improved the model: {NAME} rose from 50.00 to 70.00 at step 10 (+20.00, 95% "
        "interval +"
    )
    assert told.sentence.endswith("; this step was saved, and the same dev set chose it)")
    assert told.numbers["saved"]["step"] == 10
    assert told.numbers["last"]["step"] == 20


def test_an_improvement_that_ends_in_ruin_says_both() -> None:
    told = judge(history(0.5, 0.7, 0.2))
    assert told.outcome == "improved"
    assert "; the end was worse than the start: 20.00 at step 20 (-30.00, 95%" in told.sentence
    assert told.sentence.endswith("; the last step, which was not saved)")


def test_a_gain_within_noise_before_ruin_is_worse_and_names_both_models() -> None:
    told = judge(history(0.5, 0.505, 0.2))
    assert told.outcome == "worse"
    assert "was 50.00 at the start and 20.00 at step 20 (-30.00, 95%" in told.sentence
    assert "; the saved model is another: 50.50 at step 10 (+0.50, 95%" in told.sentence


def test_a_gain_within_noise_is_called_so() -> None:
    told = judge(history(0.5, 0.505))
    assert told.outcome == "undecided"
    assert "and 50.50 at step 10 (+0.50, 95%" in told.sentence


def test_of_images_the_last_step_is_the_saved_one() -> None:
    told = judge(history(0.5, 0.8, 0.7, saved="last"))
    assert told.outcome == "improved"
    assert "rose from 50.00 to 70.00 at step 20 (+20.00, 95%" in told.sentence
    assert told.sentence.endswith("; the highest was 80.00 at step 10, not saved")
    worse = judge(history(0.5, 0.2, saved="last"))
    assert worse.outcome == "worse"
    assert "was 50.00 at the start and 20.00 at step 10 (-30.00, 95%" in worse.sentence


def test_without_a_second_look_nothing_is_known() -> None:
    told = judge(history(0.5))
    assert told.outcome == "not known"
    assert told.sentence == f"{NAME} was 50.00 at step 0, and no later step has been scored yet"


def test_two_comparisons_are_corrected_by_holm() -> None:
    alone, both = judge(history(0.5, 0.515)), judge(history(0.5, 0.515, 0.514))
    assert both.numbers["saved"]["p"] == pytest.approx(2 * alone.numbers["saved"]["p"])


def test_an_interval_beside_0_that_is_within_noise_says_why() -> None:
    numbers, found = np.random.default_rng(11), DevHistory(NAME)
    before = numbers.random(100)
    for step, gain in ((0, None), (10, 0.02), (20, 0.0)):
        items = before if gain is None else before + numbers.normal(gain, 0.1, 100)
        found.add(step, DevEvaluation(100 * float(items.mean()), items))
    told = judge(found)
    assert told.outcome == "undecided"
    assert told.numbers["saved"]["low"] > 0
    assert "to +3.80, but p is 0.064 after Holm's correction; this step was" in told.sentence
    assert "Holm" not in judge(history(0.5, 0.53, 0.52)).sentence


def test_equal_models_are_called_different_in_a_twentieth_of_draws_at_most() -> None:
    called = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = DevHistory(NAME)
        for step in (0, 10):
            items = (rng.random(100) < 0.5).astype(float)
            found.add(step, DevEvaluation(100 * items.mean(), items))
        called += judge(found).outcome in ("improved", "worse")
    assert called <= 20  # 5% of 200 and three deviations


def paraphrased(before: DevEvaluation, after: DevEvaluation, copies: int) -> DevHistory:
    """A run in which each example has copies, all in one group and with one score."""
    found = DevHistory(NAME)
    for step, look in enumerate((before, after)):
        gold = None if look.gold is None else np.repeat(look.gold, copies)
        groups = np.repeat(np.arange(len(look.items)), copies)
        items = np.repeat(look.items, copies)
        found.add(10 * step, DevEvaluation(look.value, items, gold, groups))
    return found


@pytest.mark.parametrize("looks", [(hits(60, 0.5), hits(60, 0.6)), pairs(0.1, 0.5, 60)])
def test_copies_of_a_question_do_not_narrow_the_interval(looks: list[DevEvaluation]) -> None:
    alone, copied = (judge(paraphrased(*looks, copies)) for copies in (1, 30))
    assert copied.outcome == alone.outcome
    for number, other in zip(alone.numbers.values(), copied.numbers.values(), strict=True):
        assert other == pytest.approx(number, abs=1e-6)


def test_paraphrases_in_equal_models_are_rarely_called_different() -> None:
    called = {True: 0, False: 0}
    groups = np.repeat(np.arange(40), 10)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        for grouped in called:
            found = DevHistory(NAME)
            for step in (0, 10):
                items = np.repeat((rng.random(40) < 0.5).astype(float), 10)
                look = DevEvaluation(100 * items.mean(), items, None, groups if grouped else None)
                found.add(step, look)
            called[grouped] += judge(found).outcome in ("improved", "worse")
    assert called[True] <= 12 < 40 <= called[False]  # 5% of 100 and three deviations


@pytest.mark.parametrize("with_gold", [True, False])
def test_what_is_kept_is_judged_alike(tmp_path: Path, with_gold: bool) -> None:
    found = DevHistory("näme", "best")
    for step, look in enumerate([*pairs(0.1, 0.3), *pairs(0.2, 0.2)] if with_gold else []):
        found.add(10 * step, look)
    found = found if with_gold else paraphrased(hits(200, 0.5), hits(200, 0.6), 2)
    found.save(RunFolder(tmp_path).dev)
    assert RunFolder(tmp_path).dev.stat().st_size < 60_000
    assert judgement_of(tmp_path, None) == judge(found)
    # what the result says counts for a finished run
    told = Judgement("worse", "so it was")
    assert judgement_of(tmp_path, {"judgement": asdict(told)}) == told
    assert judgement_of(tmp_path / "nothing", {}) is None


def test_three_looks_are_kept_at_most() -> None:
    found = history(0.5, 0.7, 0.6, 0.7, 0.4, 0.65)
    assert sorted(found.evaluations) == [0, 10, 50]
    assert len(found.scores) == 6


def test_damaged_files_are_named(tmp_path: Path) -> None:
    history(0.5, 0.6).save(RunFolder(tmp_path).dev)
    whole = RunFolder(tmp_path).dev.read_bytes()
    with np.load(RunFolder(tmp_path).dev) as archive:
        other = io.BytesIO()
        np.savez(other, **{**archive, "scores": np.float64(1)})
    for content in (b"", b"no archive", whole[: len(whole) // 2], other.getvalue()):
        RunFolder(tmp_path).dev.write_bytes(content)
        with pytest.raises(InputError, match=r"remove .*dev\.npz: it cannot be read \("):
            judgement_of(tmp_path, None)
    for record in (3, [], {"outcome": "fine", "sentence": "", "numbers": {}}, {"outcome": "worse"}):
        with pytest.raises(InputError, match=r"its judgement lacks the outcome"):
            judgement_of(tmp_path, {"judgement": record})


@pytest.mark.parametrize(("rise", "saved"), [(0.3, 9), (0.03, 9), (0.016, 0), (0.0, 0), (-0.3, 0)])
def test_the_original_model_is_saved_unless_another_is_clearly_better(
    rise: float, saved: int
) -> None:
    rng = np.random.default_rng(0)
    start = rng.uniform(0.4, 0.6, 100)
    found = DevHistory(NAME, "original")
    for step, items in ((0, start), (9, start + rise + rng.normal(0, 0.1, 100))):
        found.add(step, DevEvaluation(100 * float(items.mean()), items))
    assert found.chosen_step() == saved


def test_a_step_that_is_saved_in_place_of_the_original_stays_until_a_clearer_one() -> None:
    found = DevHistory(NAME, "original")
    for step, gain, noise in ((0, 0.0, 0.0), (5, 0.1, 0.0), (9, 0.12, 1.0), (12, 0.05, 0.0)):
        items = 0.3 + gain + noise * np.tile([-0.5, 0.5], 50)
        found.add(step, DevEvaluation(100 * float(items.mean()), items))
    assert found.chosen_step() == 5
    assert found.highest_step == 9


@pytest.mark.parametrize(("drop", "saved"), [(0.0, 9), (0.016, 9), (0.03, 0), (0.3, 0)])
def test_the_trained_model_is_saved_unless_it_is_clearly_worse(drop: float, saved: int) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 80)  # a standard error of 0.011
    found = DevHistory(NAME, "trained")
    for step, items in ((0, np.full(80, 0.5)), (9, 0.5 - drop + noise - noise.mean())):
        found.add(step, DevEvaluation(100 * float(items.mean()), items))
    assert found.chosen_step() == saved
    assert judge(found).numbers["saved"]["step"] == saved


@pytest.mark.parametrize(("shift", "saved"), [(0.0, 9), (0.3, 0)])
def test_the_same_rule_holds_for_a_correlation(shift: float, saved: int) -> None:
    before, after = pairs(shift, 0.1)
    assert after.value < before.value
    found = DevHistory("dev STS", "trained")
    found.add(0, before)
    found.add(9, after)
    assert found.chosen_step() == saved


def test_only_at_the_end_is_the_trained_model_chosen(tmp_path: Path) -> None:
    found = DevHistory(NAME, "trained")
    for step, score in ((0, 0.50), (4, 0.499), (8, 0.2)):
        items = np.full(80, score)
        items[::2] += 0.1
        found.add(step, DevEvaluation(100 * float(items.mean()), items))
        found.ended = step == 8
        # within noise, but step 8 is to come
        assert (found.chosen_step(), found.highest_step) == (0, 0)
    found.ended = False
    found.save(RunFolder(tmp_path).dev)
    assert not DevHistory.load(RunFolder(tmp_path).dev).ended
