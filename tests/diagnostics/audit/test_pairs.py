"""PairedRows that stand out, and hard negatives."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from isotrope.data.order import Order
from isotrope.data.sources import read
from isotrope.data.text.store_writer import StoreSettings, build
from isotrope.diagnostics.audit.pairs import find_pairs, find_texts
from isotrope.diagnostics.audit.push import Ledger, ledger, mine_negatives
from isotrope.diagnostics.audit.rows import read_rows
from isotrope.diagnostics.audit.settings import settings_table
from isotrope.objectives.infonce import InfoNCE
from tests.diagnostics.audit.handmade import embedded, of


def test_rows_out_of_step_are_apart_and_the_others_solved() -> None:
    plain = embedded(noise=0.1)
    positives = plain.positives.clone()
    positives[[3, 70]] = -positives[[3, 70]]  # the farthest there can be
    found = find_pairs(of(plain.anchors, positives), InfoNCE(), batch_size=16)
    assert sorted(found["apart"]) == [3, 70]
    assert set(found["solved"]) == set(range(200)) - {3, 70}


def test_the_last_batch_is_no_larger_than_the_others() -> None:
    plain = embedded(127, 8, noise=0.6)  # with 126 negatives, few would be solved
    solved = find_pairs(plain, InfoNCE(), batch_size=64)["solved"]
    rows = Order(127, 0, 0)[np.arange(64)]
    first = solved[np.isin(solved, rows)]
    table = settings_table(plain, InfoNCE(), batch_size=64)
    (own,) = (line for line in table if line.own and line.name == "batch size")
    assert own.solved == pytest.approx(len(first) / 64)
    assert 0 < len(first) < 64


def test_lengths_cuts_and_repetitions() -> None:
    records = [(f"question {i}", f"answer {i}") for i in range(100)]
    records[7] = records[2]
    records[8] = ("Question, 2!", "ANSWER 2")  # near-identical, but `isotrope train` keeps it
    lengths = np.full((100, 2), 10)
    lengths[5, 1], lengths[6, 0] = 90, 1
    plain = embedded(100)
    cut = np.arange(100) == 5
    view = of(plain.anchors, plain.positives, lengths=lengths, cut=cut)
    found = find_texts(read_rows(records), view)
    assert found["repeated"].tolist() == [7]
    assert found["lengths"].tolist() == [5, 6]
    assert found["cut"].tolist() == [5]


def test_repeated_rows_are_those_that_training_drops(tmp_path: Path) -> None:
    records = [(f"split `{i}`", f".a .b {i}") for i in range(20)]
    records[5], records[6], records[7] = (records[4][0], ".a.b 4"), records[2], ("Split 3", ".a.b3")
    found = find_texts(read_rows(records), embedded(20))
    assert found["repeated"].tolist() == [6]

    def tokenize(texts: list[str], max_length: int) -> tuple[list[list[int]], int]:
        return [[1] for _ in texts], 0

    settings = StoreSettings(vocabulary=2, max_length=8)
    store = build(tmp_path / "store", read(records), tokenize, settings)
    assert store.report.duplicates_dropped == 1


def test_a_pair_with_another_hard_negative_is_no_repetition() -> None:
    records = [(f"question {i // 2}", f"answer {i // 2}", f"negative {i}") for i in range(20)]
    records[9] = records[8]
    triples = read_rows(records)
    assert (triples.columns, triples.marks.shape) == (3, (20, 2))
    found = find_texts(triples, embedded(20))
    assert found["repeated"].tolist() == [9]


def test_a_script_of_few_texts_stands_out_in_its_own_column() -> None:
    records = [(f"question {i}", f"ответ {i}") for i in range(50)]
    records[3] = ("вопрос 3", "ответ 3")
    records[4] = ("question 4", "answer 4")
    records[5] = ("12 + 5?", "ответ: π")  # no letters, and a letter of another script
    found = find_texts(read_rows(records), embedded(50))
    assert found["scripts"].tolist() == [3, 4]


def test_two_scripts_that_share_a_column_are_both_as_they_should_be() -> None:
    records = [(("question", "質問です")[i % 2] + str(i), f"answer {i}") for i in range(50)]
    found = find_texts(read_rows(records), embedded(50))
    assert len(found["scripts"]) == 0


def test_rows_without_negatives_are_not_solved() -> None:
    same = torch.ones(8, 4)
    view = of(same, same, groups=torch.zeros(8, dtype=torch.long))
    found = find_pairs(view, InfoNCE(), batch_size=4)
    assert len(found["solved"]) == len(found["apart"]) == 0


def different(n: int) -> NDArray[np.uint64]:
    """Return hashes of n pairs that share no text."""
    return np.arange(2 * n, dtype=np.uint64).reshape(n, 2)


def test_hard_negatives_are_under_the_limit_and_of_another_group() -> None:
    book = Ledger(
        partners=np.array([[1, 2, 3], [0, 2, 3], [3, 0, 1], [2, -1, -1]]),
        push=np.ones((4, 3), np.float32),
        force=np.array(
            [[0.6, 0.3, 0.1], [0.4, 0.3, 0.3], [0.3, 0.3, 0.2], [0.1, 0, 0]], np.float32
        ),
        row_force=np.ones(4),
        unit=1.0,
    )
    found = mine_negatives(book, np.array([0, 1, 2, 2]), different(4), 1, hardness=0.5)
    # of row 0 the hardest is over the limit; rows 2 and 3 belong together
    assert found.tolist() == [[0, 2], [1, 0], [2, 0]]


def test_mined_rows_are_those_that_push() -> None:
    plain = embedded(50, noise=1.0)
    book = ledger(plain, InfoNCE(temperature=0.2), None, keep=16)
    found = mine_negatives(book, np.arange(50), different(50), 3, hardness=1.0)
    assert len(found) == 150
    assert (found[:3, 1] == book.partners[0, :3]).all()


def test_a_mined_text_is_no_known_positive_and_comes_once_for_a_row() -> None:
    """Rows 0 and 1 have one anchor; rows 1 and 2, and rows 3 and 4, have one positive."""
    marks = np.array([[0, 1], [0, 2], [3, 2], [4, 5], [6, 5], [7, 8]], np.uint64)
    partners = np.array([[j for j in range(6) if j != i] for i in range(6)])
    force = np.full((6, 5), 0.2, np.float32)
    book = Ledger(partners, np.ones((6, 5)), force, np.ones(6), 1.0)
    rows = mine_negatives(book, np.arange(6), marks, 2, hardness=0.5).tolist()
    assert rows[:6] == [[0, 3], [0, 5], [1, 3], [1, 5], [2, 0], [2, 3]]
    # row 5 has no text of the others; without the repeated positive, only two texts are left
    assert rows[-2:] == [[5, 0], [5, 1]]
    every = mine_negatives(book, np.arange(6), marks, 9, hardness=0.5)
    assert every[every[:, 0] == 5, 1].tolist() == [0, 1, 3]
