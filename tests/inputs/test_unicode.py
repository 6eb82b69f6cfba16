"""Text of any script goes through as it is, and lines end where they should and nowhere else."""

import json
import tracemalloc
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.lines import lines, visible
from isotrope.data.sources import read
from isotrope.data.text.store_writer import StoreSettings, build
from isotrope.data.text.sts_sets import load_sts_file
from isotrope.encoders.sentence import SentenceEncoder
from tests.data.conftest import VOCABULARY, tokenize
from tests.data.test_bad_input import table

ODD = {
    "composed": unicodedata.normalize("NFC", "café naïve Ångström 한국어"),
    "decomposed": unicodedata.normalize("NFD", "café naïve Ångström 한국어"),
    "right to left": "السلام عليكم",
    "both directions": "she said \u202bשלום\u202c and left",
    "joined emoji": "family \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 at home",
    "flags": "\U0001f1e9\U0001f1ea \U0001f3f4\U000e0067\U000e0062\U000e007f",
    "zero-width space inside": "zero\u200bwidth",
    "soft hyphen": "co\u00adoperate",
    "beyond the first plane": "𝒻 𝄞 𠜎",
    "variation selector": "☺\ufe0f",
    "marks without end": "z" + "\u0323\u0307" * 30,
    "private": "\ue000 and \U0010ffff",
    "mark of bytes inside": "one\ufefftwo",
}
NO_LINE_ENDS = {
    "U+2028": "\u2028",
    "U+2029": "\u2029",
    "U+0085": "\x85",
    "vertical tab": "\v",
    "form feed": "\f",
    "file separator": "\x1c",
    "carriage return": "\r",
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("suffix", [".txt", ".tsv", ".csv", ".jsonl", ".escaped.jsonl", ".parquet"])
def test_a_text_stays_as_it_is(tmp_path: Path, what: str, suffix: str) -> None:
    text = ODD[what]
    plain = {
        ".txt": f"{text}\nend\n",
        ".tsv": f"{text}\nend\n",
        ".csv": f"text\n{text}\nend\n",
        ".jsonl": "".join(
            json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in (text, "end")
        ),
        ".escaped.jsonl": "".join(json.dumps({"text": t}) + "\n" for t in (text, "end")),
    }
    path = tmp_path / f"a{suffix}"
    path.write_bytes(plain[suffix].encode() if suffix in plain else table(text=[text, "end"]))
    assert [record.texts for record in read([path])] == [(text,), ("end",)]


@pytest.mark.parametrize("what", NO_LINE_ENDS)
def test_no_other_character_ends_a_line(tmp_path: Path, what: str) -> None:
    text = f"one{NO_LINE_ENDS[what]}half"
    (tmp_path / "a.txt").write_bytes(f"{text}\nlast\n".encode())
    assert [(record.line, record.texts[0]) for record in read([tmp_path / "a.txt"])] == [
        (1, text),
        (2, "last"),
    ]
    (tmp_path / "a.tsv").write_bytes(f"{text}\tb\nc\td\n".encode())
    assert [record.texts for record in read([tmp_path / "a.tsv"])] == [(text, "b"), ("c", "d")]
    whole = json.dumps({"text": text}, ensure_ascii=what == "carriage return")
    (tmp_path / "a.jsonl").write_bytes(f"{whole}\n".encode())
    if what not in ("vertical tab", "form feed", "file separator"):  # JSON escapes these
        assert [record.texts for record in read([tmp_path / "a.jsonl"])] == [(text,)]
    (tmp_path / "s.tsv").write_bytes(f"1\t{text}\tb\n2\tc\td\n".encode())
    assert len(load_sts_file(tmp_path / "s.tsv")) == 2


def test_line_ends_of_other_systems(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthree")
    assert list(lines(tmp_path / "a.txt")) == [(1, "one"), (2, "two"), (3, ""), (4, "three")]
    for name, data in {
        "mac.txt": b"one\rtwo\r",
        "mac.csv": b"text\rone\r",
        "m.tsv": b"a\tb\rc\td",
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match="convert the line ends"):
            list(read([tmp_path / name]))


def test_what_cannot_be_seen_is_empty(tmp_path: Path) -> None:
    unseen = ["\u200b", "\ufeff\u2060", "\u00ad", "\u3000\u2003", "\u200e\u200f"]
    assert [visible(text) for text in unseen] == [""] * len(unseen)
    seen = ["a", "\u200ba", ".", "👨\u200d👩", "\u0301", "한"]
    assert [visible(text) for text in seen] == seen
    (tmp_path / "a.txt").write_text("one\n" + "\n".join(unseen) + "\ntwo\n", encoding="utf-8")
    found = list(read([tmp_path / "a.txt"]))
    assert [record.texts for record in found] == [("one",), ("two",)]
    assert found[1].opens  # as after blank lines


def test_composed_and_decomposed_are_no_negatives_of_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        f"{ODD['composed']}\n{ODD['decomposed']}\nsomething else\n", encoding="utf-8"
    )
    records = read([tmp_path / "a.txt"])
    settings = StoreSettings(vocabulary=VOCABULARY, max_length=16)
    store = build(tmp_path / "s", records, tokenize, settings)
    one, two, three = store.text_marks(np.arange(3), 0)
    assert one == two != three


def test_the_encoder_decides_what_is_the_same() -> None:
    """A tokenizer that takes accents off, as BERT's does, makes one text of both forms."""
    encoder = SentenceEncoder.scratch([*ODD.values(), "plain words"], width=8, heads=1, layers=1)
    composed, decomposed = encoder.encode([ODD["composed"], ODD["decomposed"]])
    np.testing.assert_array_equal(composed, decomposed)
    assert np.isfinite(encoder.encode(list(ODD.values()))).all()


@pytest.mark.parametrize(
    "text", ["\ud800 first", "half \udc00 a pair", "byte \udcff", "fine \ud83d"]
)
def test_half_a_surrogate_pair_is_no_text(tmp_path: Path, text: str) -> None:
    encoder = SentenceEncoder.scratch(["plain words"], width=8, heads=1, layers=1)
    with pytest.raises(
        InputError, match=r"remove characters that UTF-8 cannot encode from texts\[1\]"
    ):
        encoder.encode(["fine", text])
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}) + "\n")
    with pytest.raises(
        InputError, match="line 1: remove the NUL or unpaired surrogate from column 'text'"
    ):
        list(read([tmp_path / "a.jsonl"]))
    whole = json.dumps({"text": "\U0001f468"})  # both halves
    (tmp_path / "a.jsonl").write_text(whole + "\n")
    assert [record.texts for record in read([tmp_path / "a.jsonl"])] == [("\U0001f468",)]


@pytest.mark.parametrize("suffix", [".txt", ".tsv", ".csv", ".jsonl"])
def test_a_line_of_ten_megabytes_costs_no_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"text\n" * (suffix == ".csv") + b"x" * 10_000_000 + b"\n")
    tracemalloc.start()
    with pytest.raises(InputError, match=r"more than 1?,?[01]00,000 characters"):
        list(read([path]))
    assert tracemalloc.get_traced_memory()[1] < 9_000_000  # of a line of 10
    tracemalloc.stop()


def test_names_of_files_may_be_anything(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.data.pictures import folders
    from tests.inputs import Bench

    bench = Bench(tmp_path)
    pictures = folders(tmp_path / "pictures", classes=1)
    odd = pictures / "c0" / "\udcff.png"  # a byte that is no UTF-8
    (pictures / "c0" / "0.png").rename(odd)
    (pictures / "c0" / "1.png").rename(pictures / "c0" / "a\u202egnp.txt\x1b[31m.png")
    found = run("search", bench.image, pictures, odd, "--top", 3)
    assert found.code == 0, found.err
    assert "\\udcff.png" in found.out.splitlines()[1]
    assert "\x1b" not in found.out
    assert len(found.out.splitlines()) == 4


def test_a_text_does_not_steer_the_terminal(run, tmp_path: Path) -> None:
    from tests.inputs import Bench

    text = tmp_path / "a.txt"
    text.write_text("one \x1b]0;title\x07 two\u2028three\nanother\n", encoding="utf-8")
    found = run("search", Bench(tmp_path).text, text, "one")
    assert found.code == 0
    assert "one \\u001b]0;title\\u0007 two three" in found.out
    assert "\x1b" not in found.out
    assert len(found.out.splitlines()) == 3
