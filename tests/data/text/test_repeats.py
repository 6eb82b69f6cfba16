"""Which texts count as the same, and repetitions found on disk in bounded memory."""

from pathlib import Path

import numpy as np
import pytest

from isotrope.data.text import repeats
from isotrope.data.text.repeats import hash64, mark_repeated, near_identical, read_part


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Don't panic!", "dont  PANIC"),
        ("Straße", "STRASSE"),
        ("ﬁne ½", "fine 1⁄2"),
        ("Ａ１", "a1"),
        ("über-all", "Über all"),
    ],
)
def test_near_identical(one: str, other: str) -> None:
    assert near_identical(one) == near_identical(other)


@pytest.mark.parametrize(
    ("one", "other"), [("a b", "a c"), ("!!!", "???"), ("🙂", "🙃"), ("été", "ete"), ("", "!")]
)
def test_different(one: str, other: str) -> None:
    assert near_identical(one) != near_identical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("वह जाता है", "वह जाती है"), ("कल", "काला"), ("ไม่", "ไม้"), ("மலை", "மாலை"), ("খান", "খুন")],
)
def test_marks_of_vowels_and_tones_tell_words_apart(one: str, other: str) -> None:
    assert near_identical(one) != near_identical(other)


def test_ascii_takes_no_other_road() -> None:
    text = "".join(map(chr, range(128)))
    assert near_identical(text) == near_identical(text + "¡")


def test_hash_is_fixed_and_keyed() -> None:
    # stores on disk and held-out choices rest on these values
    assert hash64(b"a") == hash64(b"a", b"") == 0x2F42665B399EF840
    assert hash64(b"a", b"1") != hash64(b"a", b"2") != hash64(b"a")


@pytest.mark.parametrize("bucket", [3, 50, 1 << 20])
@pytest.mark.parametrize("chunk", [7, 1 << 16])
def test_marks_all_but_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int, chunk: int
) -> None:
    monkeypatch.setattr(repeats, "_BUCKET", bucket)
    monkeypatch.setattr(repeats, "CHUNK", chunk)
    random = np.random.default_rng(0)
    # one value very often: a bucket must not grow with its repetitions
    hashes = np.where(random.random(400) < 0.4, 12, random.integers(0, 150, 400)).astype(np.uint64)
    hashes[5] = 2**64 - 1
    hashes.tofile(tmp_path / "hashes")
    mark_repeated(tmp_path / "hashes", tmp_path / "marks", len(hashes))
    expected = [int(value in hashes[:i]) for i, value in enumerate(hashes)]
    assert read_part(tmp_path / "marks", np.uint8, 0, 1000).tolist() == expected


def test_nothing_to_mark(tmp_path: Path) -> None:
    mark_repeated(tmp_path / "none", tmp_path / "marks", 0)
    assert (tmp_path / "marks").read_bytes() == b""
