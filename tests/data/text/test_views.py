"""Views of records, and what is held out of training."""

import random

import pytest

from isotrope.core.errors import InputError
from isotrope.data.text.views import Former, resolve

from ..conftest import records

SENTENCES = [f"sentence number {i}" for i in range(2000)]


def test_auto_follows_the_first_record() -> None:
    assert resolve("auto", records("a")[0]) == "dropout"
    assert resolve("auto", records(("a", "b"))[0]) == "pairs"
    assert resolve("adjacent", records("a")[0]) == "adjacent"


def test_views_that_do_not_fit() -> None:
    with pytest.raises(InputError, match=r"line 1: use .* a record needs two or more texts"):
        resolve("pairs", records("a")[0])
    for views in ("dropout", "adjacent"):
        with pytest.raises(
            InputError, match=r"use views='pairs', or choose one column; with views="
        ):
            resolve(views, records(("a", "b"))[0])


def test_adjacent_texts_stay_within_a_document() -> None:
    former = Former("adjacent", 0.0, 0)
    formed = list(former.form(records("a", "b", "c", None, "d", None, "e", "f")))
    assert [record.texts for record in formed] == [("a", "b"), ("b", "c"), ("e", "f")]
    assert [record.continues for record in formed] == [False, True, False]
    assert not any(record.held for record in formed)


def test_holdout_depends_on_seed_and_anchor_only() -> None:
    def held(texts: list[str], seed: int) -> set[str]:
        former = Former("dropout", 0.1, seed)
        return {record.texts[0] for record in former.form(records(*texts)) if record.held}

    chosen = held(SENTENCES, 0)
    assert 140 < len(chosen) < 260  # 200 expected, standard deviation 13
    assert held(random.Random(0).sample(SENTENCES, 2000), 0) == chosen
    assert held(SENTENCES[:1000], 0) == chosen & set(SENTENCES[:1000])
    assert len(held(SENTENCES, 1) & chosen) < 60
    # near-identical anchors fall on the same side
    assert held([text.upper() + "!" for text in SENTENCES], 0) == {t.upper() + "!" for t in chosen}


def test_pairs_are_held_out_by_their_anchor() -> None:
    pairs = [(text, f"{i} {text}") for text in SENTENCES for i in range(2)]
    sides: dict[str, set[bool]] = {}
    for record in Former("pairs", 0.3, 0).form(records(*pairs)):
        sides.setdefault(record.texts[0], set()).add(record.held)
    assert all(len(side) == 1 for side in sides.values())


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_held_out_adjacent_texts_are_never_trained_on(share: float) -> None:
    former = Former("adjacent", share, 0)
    formed = list(former.form(records(*SENTENCES)))
    held = [record.texts for record in formed if record.held]
    trained = [record.texts for record in formed if not record.held]
    assert abs(len(held) / len(SENTENCES) - share) < 0.03
    assert not {t for texts in held for t in texts} & {t for texts in trained for t in texts}
    assert len(held) + len(trained) < len(SENTENCES) - 1
    # `continues` is true exactly where the anchor was the positive of the record before
    previous = None
    for record in (record for record in formed if not record.held):
        assert record.continues == (previous is not None and previous == record.texts[0])
        previous = record.texts[1]
