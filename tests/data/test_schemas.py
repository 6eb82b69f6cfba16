"""Reading corpora: every format, its gzip, folders, documents; memory does not grow with lines."""

import csv
import io
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isotrope.core.errors import InputError, MissingExtra
from isotrope.data.lines import MAX_CHARACTERS, lines, visible
from isotrope.data.records import Record
from isotrope.data.sources import read
from isotrope.data.table import SUFFIXES

from .tables import TEXTS, write

PAIRS = [("how warm", "it is 20 degrees"), ("who, then", 'the "baker"'), ("where", "in town")]
TRIPLES = [(*pair, f"wrong {i}") for i, pair in enumerate(PAIRS)]
COLUMNS = ("anchor", "positive", "negative")
KINDS = [(kind, end) for kind in SUFFIXES for end in ("", ".gz")]
KINDS = [kind for kind in KINDS if kind not in [(".parquet", ".gz"), (".arrow", ".gz")]]
REPORTS = Path(__file__).parent / "reports"


def texts_of(paths: Sequence[Path | str], **settings) -> list[tuple[str, ...]]:
    return [record.texts for record in read(paths, **settings)]


@pytest.mark.parametrize(("suffix", "end"), KINDS)
def test_single_texts(tmp_path: Path, suffix: str, end: str) -> None:
    path = write(tmp_path / f"a{suffix}{end}", TEXTS, ["text"])
    found = list(read([path]))
    assert [record.texts for record in found] == TEXTS
    assert [record.opens for record in found] == [True, False, False]
    first_line = 2 if suffix == ".csv" else 1
    assert [record.line for record in found] == [first_line, first_line + 1, first_line + 2]
    assert {record.path for record in found} == {path}


@pytest.mark.parametrize("rows", [PAIRS, TRIPLES])
@pytest.mark.parametrize(("suffix", "end"), [kind for kind in KINDS if kind[0] != ".txt"])
def test_pairs(tmp_path: Path, suffix: str, end: str, rows: list[tuple[str, ...]]) -> None:
    path = write(tmp_path / f"a{suffix}{end}", rows, COLUMNS[: len(rows[0])])
    assert texts_of([path]) == rows


def test_columns_with_names_can_be_chosen_by_number(tmp_path: Path) -> None:
    file = tmp_path / "faq.csv"
    file.write_text("nr,frage,antwort\n1,q,a\n2,p,b\n")
    assert texts_of([file], columns=["2", "3"]) == [("q", "a"), ("p", "b")]
    with pytest.raises(InputError, match="no column '2'"):
        texts_of([file], columns=["2", "4"])


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_columns_in_the_order_asked(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", TRIPLES, ["q", "answer", "text"])
    assert texts_of([path], columns=["answer", "q"]) == [(b, a) for a, b, _ in TRIPLES]
    assert texts_of([path]) == [(c,) for *_, c in TRIPLES]  # the column called text


def test_tsv_with_columns_has_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", [("id", "q", "p", "x"), ("1", "a", "b", "c")], [])
    assert texts_of([path], columns=["p", "q"]) == [("b", "a")]


@pytest.mark.parametrize("names", [["sentence", "other"], ["text", "sentence"], ["odd one"]])
def test_the_usual_columns(tmp_path: Path, names: list[str]) -> None:
    rows = [tuple(f"{name} {i}" for name in names) for i in range(2)]
    path = write(tmp_path / "a.csv", rows, names)
    assert texts_of([path]) == [(row[0],) for row in rows]


def test_a_tab_in_txt_is_text_and_tsv_knows_no_quotes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ttwo\n")
    (tmp_path / "a.tsv").write_text('"one\t"two" three\n')
    assert texts_of([tmp_path / "a.txt"]) == [("one\ttwo",)]
    assert texts_of([tmp_path / "a.tsv"]) == [('"one', '"two" three')]
    (tmp_path / "a.tsv").write_text('"question"\t"answer"\n"four"\t"five"\n')
    assert texts_of([tmp_path / "a.tsv"]) == [("four", "five")], "a quoted header"


@pytest.mark.parametrize("header", [("anchor", "positive"), ()])
def test_quotes_in_a_tsv_of_a_data_frame(tmp_path: Path, header: tuple[str, ...]) -> None:
    rows = [("plain", "a, b"), ('say "ahoy" now', 'it is 5" wide'), ('"', '"all"')]
    raw = ['"not" all "quoted"\t"quoted"', '"an ""open" one\t5"']
    body = io.StringIO()
    csv.writer(body, delimiter="\t", lineterminator="\n").writerows([header, *rows])
    path = tmp_path / "a.tsv"
    path.write_text(body.getvalue() + "\n".join(raw))
    assert texts_of([path]) == [*rows, *(tuple(line.split("\t")) for line in raw)]
    path.write_text('a\tb\n"two\nlines"\tc\n')
    with pytest.raises(InputError, match=r"line 2: save this table as .csv, because .* 2 fields"):
        texts_of([path])


def test_byte_order_mark_windows_line_ends_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf  first \r\n\r\n \t \r\nsecond\r\nthird")
    assert list(read([path])) == [
        Record(("first",), path, 1, True),
        Record(("second",), path, 4, True),
        Record(("third",), path, 5, False),
    ]


def test_blank_rows_of_tables_end_documents_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('\ntext\none\n\ntwo\n""\nthree\n')
    (tmp_path / "a.jsonl").write_text('\n{"text": "one"}\n\n{"text": null}\n{"text": "two"}\n')
    assert [(r.texts, r.opens) for r in read([tmp_path / "a.csv"])] == [
        (("one",), True),
        (("two",), True),
        (("three",), True),
    ]
    assert [(r.line, r.opens) for r in read([tmp_path / "a.jsonl"])] == [(2, True), (5, True)]


def test_a_csv_cell_of_several_lines_is_one_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\n"one\ntwo"\nthree\n')
    assert [(r.texts, r.line) for r in read([tmp_path / "a.csv"])] == [
        (("one\ntwo",), 2),
        (("three",), 4),
    ]
    with (tmp_path / "a.csv").open("a") as file:
        file.write('"four\nfive",six\n')
    with pytest.raises(InputError, match=r"a\.csv, line 5: .* 2 fields, but the header has 1"):
        list(read([tmp_path / "a.csv"]))


def test_a_long_csv_cell_in_a_column_that_is_not_read(tmp_path: Path) -> None:
    page = "a line\n" * 100_000
    (tmp_path / "a.csv").write_text(f'text,page\none,"{page}"\ntwo,"{page}"\n')
    assert [r.texts for r in read([tmp_path / "a.csv"])] == [("one",), ("two",)]


def test_missing_pyarrow_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", TEXTS, ["text"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[parquet\]'"):
        texts_of([path])


def test_longest_line_is_read_and_no_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("𝄞" * MAX_CHARACTERS + "\r\nshort\n", encoding="utf-8")
    assert [len(text) for _, text in lines(path)] == [MAX_CHARACTERS, 5]
    path.write_text("x" * (MAX_CHARACTERS + 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1: .* more than 100,000 characters"):
        list(lines(path))


def test_a_huge_line_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as handle:
        handle.write(b"fine\n")
        for _ in range(50):
            handle.write(b"x" * 1_000_000)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"line 2: .* has more than"):
        texts_of([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


@settings(max_examples=25, deadline=None)
# a file whose only line ends are CR is refused, which has a test of its own
@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), max_size=20)))
@example(["0", "\xad"])
@example(["\xad"])
def test_txt_round_trip(texts: list[str]) -> None:
    expected = [(text.strip(),) for text in texts if visible(text.strip())]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes(b"\xef\xbb\xbf" + "\n".join(texts).encode())
        if expected:
            assert texts_of([path]) == expected
        else:
            with pytest.raises(InputError, match=r"is empty|holds only blank lines|holds no text"):
                texts_of([path])


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=200),
    st.sampled_from(["".join(kind) for kind in KINDS]),
)
def test_any_bytes_are_read_or_refused_on_one_line(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a{suffix}")
        path.write_bytes(content)
        try:
            message = f"{path}" if texts_of([path]) else "nothing was read"
        except InputError as error:
            message = str(error)
        assert str(path) in message
        assert "\n" not in message


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("one\n")

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        InputError, match=r"a.txt: check the path; it cannot be read \(Permission denied\)"
    ):
        texts_of([tmp_path / "a.txt"])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".tsv"])
def test_groups_are_a_column_beside_the_texts(suffix: str, tmp_path: Path) -> None:
    rows = [(*pair, group) for pair, group in zip(PAIRS, ("7", "", "7"), strict=True)]
    file = tmp_path / f"rows{suffix}"
    names = ("anchor", "positive", "topic")
    write(file, [names, *rows] if suffix == ".tsv" else rows, names)
    columns = names[:2] if suffix == ".tsv" else None
    found = [*read([file], columns=columns, groups="topic")]
    assert [record.texts for record in found] == PAIRS
    assert [record.group for record in found] == ["7", "", "7"]
    assert texts_of([file], columns=names[:2]) == PAIRS
    with pytest.raises(InputError, match="no column 'topics'"):
        next(iter(read([file], columns=columns, groups="topics")))
