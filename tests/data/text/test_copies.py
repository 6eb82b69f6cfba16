"""Near-copies among texts: which count, with which number of texts, and in which scripts."""

import random

import numpy as np
import pytest

from isotrope.data.text import copies
from isotrope.data.text.copies import NearCopies, near_copies

ONE = "The quick brown fox jumps over the lazy dog"
CHINESE = "请打开手机应用程序并立即冻结您的银行卡"
HINDI = (
    "भारत की राजधानी नई दिल्ली है और यह शहर यमुना नदी के किनारे बसा हुआ है",
    "टमाटर की चटनी बनाने के लिए पहले प्याज और लहसुन को तेल में भून लें",
)


@pytest.mark.parametrize(
    ("other", "copy"),
    [
        (ONE, True),
        (ONE.upper() + "!", True),
        (f"{ONE} (12)", True),
        (f"{ONE} again", True),  # 8 of 9 different words
        (f"{ONE} again and again and then once more", False),
        ("The quick brown cat walks past the lazy dog", False),
        ("Something else altogether, with other words in it", False),
    ],
)
def test_four_fifths_of_the_words(other: str, copy: bool) -> None:
    number = near_copies([ONE, other, "A third text that has nothing to do with these"])
    assert number == NearCopies(texts=3, copies=2 if copy else 0, compared=3, left_out=0)


def test_short_texts_and_texts_without_words_are_no_copies() -> None:
    assert near_copies(["New York", "new york", "42", "43", "...", ""]).copies == 0


def test_texts_of_a_group_are_no_copies_of_each_other() -> None:
    texts = [ONE, ONE.upper() + "!", "Something else altogether, with other words in it"]
    assert near_copies(texts, groups=np.array([0, 0, 1])).copies == 0
    groups = np.array([0, 0, 1, 2])
    assert near_copies([*texts, f"{ONE} (1)"], groups=groups).share == 3 / 4


def test_one_text_has_no_other() -> None:
    assert near_copies([ONE]).share == near_copies([]).share == 0


def test_scripts_without_spaces_and_with_vowel_signs() -> None:
    assert near_copies([CHINESE, f"{CHINESE}。", "今天天气很好我们去公园散步吧"]).copies == 2
    assert near_copies([CHINESE, CHINESE[::-1]]).copies == 0
    thai = "ธนาคารจะปิดทำการในวันหยุดนักขัตฤกษ์"
    assert near_copies([thai, f"{thai}นะ"]).copies == 2
    assert near_copies(HINDI).copies == 0
    assert near_copies([*HINDI, f"{HINDI[0]} भी"]).copies == 2
    # a vowel sign is a part of its word, so these four words differ
    assert near_copies(["की के का कु", "की कि को कू"]).copies == 0


@pytest.mark.parametrize("seed", range(20))
def test_against_comparing_all_texts(seed: int) -> None:
    """Random texts, and copies of a fourth of them, beside them or elsewhere."""
    draw = random.Random(seed)
    letters, between = (CHINESE, "") if seed % 2 else ("abcdefgh", " ")
    words = ["".join(draw.choices(letters, k=3)) for _ in range(draw.choice([12, 30, 200]))]
    texts = [between.join(draw.choices(words, k=draw.randint(1, 30))) for _ in range(100)]
    for _ in range(25):
        place = draw.randrange(len(texts))
        beside = place + 1 if draw.random() < 0.5 else draw.randrange(len(texts))
        texts.insert(beside, between.join([texts[place], draw.choice(words)]))
    groups = np.array([draw.randrange(draw.choice([2, 200])) for _ in texts])
    examined = np.array([draw.random() < 0.7 for _ in texts])
    has = [set(copies._words(text)) for text in texts]
    expected = sum(
        any(
            groups[i] != groups[j]
            and min(len(has[i]), len(has[j])) >= 4
            and 5 * len(has[i] & has[j]) >= 4 * len(has[i] | has[j])
            for j in range(len(texts))
        )
        for i in np.flatnonzero(examined)
    )
    number = near_copies(texts, groups=groups, examined=examined)
    assert number == NearCopies(int(examined.sum()), expected, len(texts), 0)


def test_copies_beside_each_other_in_many_texts() -> None:
    """Ten thousand texts, where every second one is a copy of the text before it."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=6)) for _ in range(3000)]
    texts: list[str] = []
    for _ in range(5_000):
        drawn = draw.sample(words, 10)
        texts += [" ".join(drawn), " ".join([*drawn, draw.choice(words)])]
    assert near_copies(texts).copies == len(texts)


def test_texts_that_are_too_many_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{ONE} {'abcde'[i % 5]}" for i in range(50)]
    assert near_copies(texts).limit == ""
    monkeypatch.setattr(copies, "_MOST", 2_000)
    number = near_copies(texts, examined=np.arange(50) % 2 == 0)
    assert 0 < number.compared == 50 - number.left_out < 50
    assert number.texts == number.copies == (number.compared + 1) // 2
    assert f"{number.left_out}" in number.limit
