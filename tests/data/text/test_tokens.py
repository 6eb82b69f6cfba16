"""The token store: its columns and hashes, reopened and broken stores."""

import json
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.text import tokens
from isotrope.data.text.tokens import TokenStore

from ..conftest import Make, ids, stored


def test_every_record_has_its_own_number_of_hard_negatives(make: Make) -> None:
    rows = [
        ("a", "b", "n", "m"),
        ("c", "d"),
        ("e", "f", "@"),
        ("g", "h", "k"),
        ("a", "b", "n", "m"),
    ]
    store = make(rows, groups=["x", "y", "z", "x", "x"], grouped=True)
    assert stored(store, 0) == [ids("a"), ids("c"), ids("g")]
    assert stored(store, 2) == [ids("n"), ids("m"), ids("k")]
    records = np.array([2, 1, 0])
    assert [row.tolist() for row in store.rows(records, 2)] == [ids("k"), ids("n"), ids("m")]
    assert store.owners(records).tolist() == [0, 2, 2]
    (labels,) = store.group_marks(records)
    assert labels[0] == labels[2] != labels[1]
    assert (store.report.empty_skipped, store.report.duplicates_dropped) == (1, 1)


def test_held_out_records_whose_texts_are_trained_on_are_counted(make: Make) -> None:
    pairs = [(f"question {i}", f"answer {i}") for i in range(200)]
    alone = make(pairs, holdout=0.2)
    assert alone.report.held_out > 20
    assert not alone.trained_on([*alone.held_out()]).any()
    assert len(alone.trained_on([])) == 0
    both = make([*pairs, *((answer, question) for question, answer in pairs)], holdout=0.2)
    held = [*both.held_out()]
    # the same pair the other way round is trained on, unless its answer was chosen, too
    expected = sum((b, a) not in held for a, b in held)
    asked = [(a.upper(), f"{b}!", "other") for a, b in held]
    assert both.trained_on(asked).sum() == expected > 20
    third = make([("a", "b", "c"), ("d", "e"), ("g", "h", "i", "j")])  # negatives count too
    asked = [("x", "c"), ("x", "e"), ("d", "x"), ("J", "x"), ("x", "y")]
    assert third.trained_on(asked).tolist() == [True, True, True, True, False]


def test_stores_reopen(make: Make) -> None:
    store = make(["a", "b", "c"])
    copy = TokenStore.open(store.folder)
    assert stored(copy) == stored(store)
    assert copy.report == store.report


def test_a_broken_store_is_refused(make: Make, tmp_path: Path) -> None:
    folder = make(["a", "b", "c"]).folder
    manifest = folder / "manifest.json"
    whole = manifest.read_text()
    with pytest.raises(InputError, match="the tokens in it cannot be used"):
        TokenStore.open(tmp_path / "nowhere")
    manifest.write_text(json.dumps(json.loads(whole) | {"format": 99}))
    with pytest.raises(InputError, match=f"format 99, needed {tokens.FORMAT}"):
        TokenStore.open(folder)
    manifest.write_text(whole)
    (folder / "groups.bin").write_bytes(b"")
    with pytest.raises(
        InputError, match=r"in it cannot be used .*groups.bin has 0 bytes, not 24\)"
    ):
        TokenStore.open(folder)
