import pytest

from isotrope.core.errors import InputError
from isotrope.evaluation import dev_score
from isotrope.evaluation.dev_score import holdout_set
from isotrope.evaluation.retrieval import retrieval_evaluation

SUBJECTS = ["the boat", "a miller", "our cat", "the night train", "her teacher", "one old oak"]
DEEDS = [
    "waits beside the river",
    "sings without any reason",
    "dreams of warm bread",
    "falls asleep",
]
TEXTS = [
    f"{subject} {deed} while number {i} of the clocks strikes {i + j}"
    for i, subject in enumerate(SUBJECTS)
    for j, deed in enumerate(DEEDS)
]
PAIRS = [(f"anchor {i}", f"positive {i}") for i in range(40)]


def found(data):
    """The (query, target) pairs of a set."""
    return {
        (query, data.corpus[place])
        for query, relevant in zip(data.queries, data.relevant, strict=True)
        for place in relevant
    }


@pytest.mark.parametrize("views", ["adjacent", "pairs"])
def test_pairs_are_query_and_target(views):
    data = holdout_set([(*pair, "ignored") for pair in PAIRS], views)
    assert found(data) == set(PAIRS)
    assert all(row == {place: 1.0} for row in data.relevant for place in row)


def test_single_texts_are_cut_in_the_middle():
    data = holdout_set([[text] for text in TEXTS], "dropout")
    assert len(data.queries) <= len(TEXTS)
    for query, target in found(data):
        assert f"{query} {target}" in TEXTS
        assert 0 <= len(target.split()) - len(query.split()) <= 1


def test_short_texts_are_left_out():
    short = [["only seven words stand in this line"]] * 5
    assert found(holdout_set([*short, *([t] for t in TEXTS)], "dropout")) == found(
        holdout_set([[t] for t in TEXTS], "dropout")
    )


def test_a_query_may_find_any_target_of_its_group(monkeypatch):
    groups = [i // 4 for i in range(len(PAIRS))]
    data = holdout_set([*PAIRS, PAIRS[0]], "pairs", groups=[*groups, 99])
    for query, relevant in zip(data.queries, data.relevant, strict=True):
        first = 4 * (int(query.split()[1]) // 4)
        expected = {f"positive {first + i}" for i in range(4)}
        assert {data.corpus[place] for place in relevant} == expected
    # of those that are drawn, and in the same order as without groups
    with monkeypatch.context() as fewer:
        fewer.setattr(dev_score, "MOST", 25)
        few = holdout_set(PAIRS, "pairs", seed=3, groups=groups)
        alone = holdout_set(PAIRS, "pairs", seed=3)
    assert (few.queries, few.corpus) == (alone.queries, alone.corpus)
    assert found(alone) < found(few)
    assert holdout_set(PAIRS, "pairs", groups=list(range(40))) == holdout_set(PAIRS, "pairs")


def test_answers_of_the_training_data_are_right_for_their_group():
    others = {"positive 0": 0, "known": 3, "strange": 99}
    plain = holdout_set(PAIRS, "pairs", others=others)
    grouped = holdout_set(PAIRS, "pairs", others=others, groups=list(range(40)))
    assert len(plain.corpus) == len(PAIRS) + 2
    assert grouped.corpus == plain.corpus
    assert found(grouped) == found(plain) | {("anchor 3", "known")}


def test_a_query_of_a_group_does_not_find_its_own_text():
    records = [(f"word {i}", f"word {i + 1}") for i in range(40)]
    alone = holdout_set(records, "pairs")
    grouped = holdout_set(records, "pairs", groups=[0, 0, *range(2, 40)])
    assert len(alone.itself) == len(grouped.itself) == 39
    assert found(grouped) == found(alone) | {("word 0", "word 2")}


def test_labels_that_the_encoder_cannot_tell_apart_have_a_low_score(minilm):
    texts = [f"note {i} on the weather in town {i % 7}" for i in range(40)]
    halves = [texts[i::2] for i in (0, 1)]  # two labels without a meaning
    records = [pair for half in halves for pair in zip(half, half[1:] + half[:1], strict=True)]
    data = holdout_set(records, "pairs", groups=[0] * 20 + [1] * 20)
    assert retrieval_evaluation(minilm, data).value < 90  # 100 if a text found itself


def test_equal_texts_count_once_and_share_their_targets():
    pairs = [*PAIRS, PAIRS[0], ("anchor 0", "another"), ("new", "positive 1"), ("same", "same")]
    data = holdout_set(pairs, "pairs")
    assert found(data) == {*PAIRS, ("anchor 0", "another"), ("new", "positive 1")}
    assert len(set(data.queries)) == len(data.queries) == 41
    assert len(set(data.corpus)) == len(data.corpus) == 41
    assert len(data.relevant[data.queries.index("anchor 0")]) == 2


def test_a_limited_draw_depends_on_the_seed_alone(monkeypatch):
    monkeypatch.setattr(dev_score, "MOST", 25)
    draw = holdout_set(PAIRS, "pairs", seed=3)
    assert len(draw.queries) == 25
    assert draw == holdout_set(PAIRS, "pairs", seed=3)
    assert draw != holdout_set(PAIRS, "pairs", seed=4)
    assert found(draw) < set(PAIRS)


def test_too_few_texts():
    records = [[text] for text in TEXTS[:19]] + [["too short"]] * 30
    with pytest.raises(
        InputError,
        match=r"with holdout=0.26, or give dev an STS file .*: found 19 texts of at least 8 words "
        r"among 49 held-out records, but dev='auto' needs 20",
    ):
        holdout_set(records, "dropout", whole=400)
    with pytest.raises(
        InputError, match=r"^give dev .* found 1 pairs of two different texts among 50 held-out"
    ):
        holdout_set([PAIRS[0]] * 49 + [("a", "a")], "pairs")


def test_a_pretrained_encoder_finds_what_belongs_together(minilm):
    things = "boat oak cat train clock bread violin river snow candle tiger ladder onion moon rope"
    things += " castle shoe piano honey bridge"
    pairs = [
        (f"the {thing} was in the garden", f"everybody looked at a {thing}")
        for thing in things.split()
    ]
    assert retrieval_evaluation(minilm, holdout_set(pairs, "pairs")).value > 90
