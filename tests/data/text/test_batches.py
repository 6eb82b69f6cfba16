"""Batches: every record once an epoch, and the columns of a batch."""

import itertools

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.text.batches import Batch, Batches, collate, cut
from isotrope.data.text.repeats import joined_groups

from ..conftest import Make, tokenize

PAD = 0


def unpacked(batch: Batch) -> list[list[list[int]]]:
    """Return the token ids of every view in batch order, padding removed by the mask."""
    return [
        [ids[mask == 1].tolist() for ids, mask in zip(*column, strict=True)]
        for column in batch.columns
    ]


def sizes(batch: Batch) -> list[int]:
    return [len(column.input_ids) for column in batch.columns]


def ids(*texts: str) -> list[list[int]]:
    return tokenize(list(texts), 16)[0]


@pytest.mark.parametrize(
    ("n", "size", "steps"),
    [(10, 5, 2), (10, 4, 2), (9, 4, 2), (2, 2, 1)],
)
def test_an_epoch_takes_every_record_once(n: int, size: int, steps: int) -> None:
    batches = Batches(range(n), size, seed=3)
    assert batches.steps_per_epoch == steps
    for epoch in (0, 1, 5, 0):
        taken = np.concatenate([batches.indices(epoch, step) for step in range(steps)])
        assert len(set(taken.tolist())) == len(taken) >= n - size + 1
        assert set(taken.tolist()) <= set(range(n))


def test_steps_are_a_function_of_seed_and_step() -> None:
    batches = Batches(range(100), 10, seed=1)
    expected = [batches.indices(*divmod(step, 10)).tolist() for step in range(25)]
    again = Batches(range(100), 10, seed=1)
    assert [again.at(step).tolist() for step in reversed(range(25))] == expected[::-1]
    assert Batches(range(100), 10, seed=2).at(0).tolist() != expected[0]
    assert expected[10] != expected[0]


def test_impossible_batches() -> None:
    with pytest.raises(
        InputError, match=r"at most 10, not 11, .*: the data have only 10 different rec"
    ):
        Batches(range(10), 11)
    for size in (1, 0, -4):
        with pytest.raises(InputError, match=f"batch of {size} has no negatives"):
            Batches(range(10), size)


def test_dropout_views_hold_every_text_twice(make: Make) -> None:
    random = np.random.default_rng(0)
    texts = [" ".join(["w"] * random.integers(1, 14)) + f" {i}" for i in range(64)]
    batch = collate(make(texts), np.arange(64)[::-1], pad_id=PAD)
    assert unpacked(batch) == [ids(*texts[::-1])] * 2
    for column in batch.columns:
        assert column.input_ids.dtype == column.attention_mask.dtype == np.int64
        assert (column.input_ids[column.attention_mask == 0] == PAD).all()
        assert column.attention_mask[:, -1].any()  # no column is wider than it must be
        assert (np.diff(column.attention_mask) <= 0).all()  # padding at the end only


def test_pairs_and_hard_negatives(make: Make) -> None:
    store = make([(f"a {i}", f"longer p {i}", f"n {i}") for i in range(10)])
    batch = collate(store, np.array([4, 2]), pad_id=PAD)
    assert unpacked(batch) == [
        ids("a 4", "a 2"),
        ids("longer p 4", "longer p 2"),
        ids("n 4", "n 2"),
    ]


def test_hard_negatives_that_are_in_the_batch_already_are_left_out(make: Make) -> None:
    store = make([("a", "p", "Q!"), ("b", "q", "n"), ("c", "r", "N."), ("d", "s", "m")])
    batch = collate(store, np.arange(4), pad_id=PAD)
    assert sizes(batch) == [4, 4, 2]
    assert unpacked(batch)[2] == ids("n", "m")  # "Q!" is the positive of b; "N." is "n"
    everything = make([("a", "p", "b"), ("b", "q", "p")])
    assert len(collate(everything, np.arange(2), pad_id=PAD).columns) == 2


def test_groups_join_near_identical_rows(make: Make) -> None:
    store = make(["one two", "three", "One, two!", "four"])
    groups = collate(store, np.arange(4), pad_id=PAD).groups
    assert groups.dtype == np.int64
    assert groups[0] == groups[2]
    assert len(set(groups.tolist())) == 3


def test_groups_join_texts_that_differ_only_after_the_cut(make: Make) -> None:
    store = make(["a b c", "a b d", "b a c"], max_length=4)
    groups = collate(store, np.arange(3), pad_id=PAD).groups
    assert groups[0] == groups[1] != groups[2]


def test_groups_of_pairs_join_by_either_side_and_across(make: Make) -> None:
    store = make([("a", "p"), ("b", "P"), ("B!", "q"), ("c", "r"), ("r", "s"), ("d", "t")])
    groups = collate(store, np.arange(6), pad_id=PAD).groups.tolist()
    assert groups[0] == groups[1] == groups[2]  # p = P, b = B
    assert groups[3] == groups[4]  # the positive of c is the anchor of the next
    assert len(set(groups)) == 3
    # a row's group does not depend on its place, so that processes agree
    assert collate(store, np.arange(6)[::-1], pad_id=PAD).groups.tolist() == groups[::-1]


def test_groups_of_the_data_join_records_in_every_part(make: Make) -> None:
    """Also with what texts join; a record without a group is alone."""
    texts = [("a", "p"), ("b", "q"), ("c", "r"), ("d", "Q"), ("e", "s"), ("f", "t")]
    store = make(texts, grouped=True, groups=["x", "y", "x", "", "", "x"])
    indices = np.arange(6)
    groups = collate(store, indices, pad_id=PAD).groups
    assert groups[0] == groups[2] == groups[5]
    assert groups[1] == groups[3]  # q = Q
    assert len(set(groups.tolist())) == 3
    parts = [collate(store, indices, pad_id=PAD, part=p).groups for p in (slice(0, 2), slice(2, 6))]
    assert np.concatenate(parts).tolist() == groups.tolist()


def test_parts_make_the_whole_batch(make: Make) -> None:
    """Groups join across parts, and a hard negative of one may be there already in another."""
    store = make([("a", "p", "Q!"), ("b", "P", "n"), ("c", "r", "N."), ("d", "q", "m")])
    indices = np.array([3, 1, 0, 2])
    whole = collate(store, indices, pad_id=PAD)
    parts = [collate(store, indices, pad_id=PAD, part=p) for p in (slice(0, 3), slice(3, 4))]
    for view in range(3):
        found = [row for part in parts for rows in unpacked(part)[view:][:1] for row in rows]
        assert found == unpacked(whole)[view]
    assert [sizes(part) for part in parts] == [[3, 3, 2], [1, 1]]  # "N." is "n", "Q!" is "q"
    assert np.concatenate([part.groups for part in parts]).tolist() == whole.groups.tolist()
    alone = [collate(store, indices[p], pad_id=PAD) for p in (slice(0, 1), slice(1, 4))]
    assert sum(sum(sizes(batch)[2:]) for batch in alone) == 3  # each part by itself keeps "Q!"


def test_joined_groups_against_a_search() -> None:
    random = np.random.default_rng(0)
    for n in (1, 2, 5, 20, 60):
        marks = random.integers(0, 2 * n, (n, 3)).astype(np.uint64) << np.uint64(58)
        groups = joined_groups(marks)
        linked = (marks[:, None, :, None] == marks[None, :, None, :]).any(axis=(2, 3))
        reach = np.linalg.matrix_power(linked.astype(float), n) > 0
        assert np.array_equal(groups[:, None] == groups[None, :], reach)


def test_cut_is_best_among_all_cuts() -> None:
    random = np.random.default_rng(0)
    for overhead in (0, 3, 10, 40):
        for _ in range(20):
            lengths = np.sort(random.integers(1, 15, random.integers(1, 9)))
            n = len(lengths)

            def cost(bounds: list[int], lengths=lengths, overhead=overhead) -> int:
                return sum(
                    (b - a) * lengths[b - 1] + overhead for a, b in itertools.pairwise(bounds)
                )

            best = min(
                cost([0, *inner, n])
                for k in range(n)
                for inner in itertools.combinations(range(1, n), k)
            )
            bounds = cut(lengths, overhead)
            assert bounds[0] == 0
            assert bounds[-1] == n
            assert cost(bounds) == best


def test_padding_is_low_on_sentences_of_natural_length() -> None:
    """Lengths as of English sentences (log-normal, mean 25 tokens, cut at 32), batch of 64."""
    random = np.random.default_rng(0)
    tokens = padded = chunks = 0
    for _ in range(50):
        texts = np.exp(random.normal(3.1, 0.5, 64)).astype(int).clip(4, 32)
        lengths = np.sort(np.repeat(texts, 2))
        bounds = cut(lengths, 64)
        chunks += len(bounds) - 1
        tokens += lengths.sum()
        padded += sum((b - a) * lengths[b - 1] for a, b in itertools.pairwise(bounds))
    assert 1 - tokens / padded < 0.11  # 0.32 as one chunk
    assert chunks / 50 < 6


def test_pairs_linked_through_a_pair_of_another_batch_are_of_one_group(make: Make) -> None:
    rest = [(f"question {i}", f"answer {i}") for i in range(80)]
    chain = [("what", "this"), ("which", "this"), ("which", "that")]
    store = make([*chain, *rest])
    first, last, other = collate(store, np.array([0, 2, 50]), pad_id=PAD).groups
    assert first == last != other
    one = make([(f"question {i}", "yes") for i in range(40)] + rest)  # too long a chain
    assert one.link_marks(np.arange(40))[0].tolist() == one.text_marks(np.arange(40), 0).tolist()
    assert make(["a b", "b c"]).link_marks(np.arange(2)) == []
