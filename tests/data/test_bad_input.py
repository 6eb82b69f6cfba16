"""Every malformed corpus is refused on one line that names the file and says what to do."""

import gzip
import inspect
import io
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isotrope.core.documents import parse_json
from isotrope.core.errors import InputError
from isotrope.core.legible import legible
from isotrope.data.sources import read

Maker = Callable[[Path], object]


def content(data: bytes | str | Callable[[], bytes]) -> Maker:
    def make(path: Path) -> None:
        whole = data() if callable(data) else data
        path.write_bytes(whole.encode() if isinstance(whole, str) else whole)

    return make


def zipped(data: bytes | str) -> Maker:
    return content(gzip.compress(data.encode() if isinstance(data, str) else data))


def table(**columns: list[object]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def damaged_table() -> bytes:
    """Return a parquet file whose footer is whole and whose data is not."""
    whole = bytearray(table(text=[f"text {i}" * 20 for i in range(500)]))
    whole[4:400] = bytes(396)
    return bytes(whole)


def listening(path: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


LONG = "x" * 1_000_000

# name of the file, how it is made, what the error says
CASES: list[tuple[str, Maker, str]] = [
    # files
    ("missing.txt", lambda path: None, "check the path; there is no such file"),
    ("missing", lambda path: None, "check the path; there is no such file"),
    ("dangling.txt", lambda path: path.symlink_to("nowhere"), "no such file"),
    ("loop.txt", lambda path: path.symlink_to(path), "cannot be read (Too many levels"),
    ("n" * 300 + ".txt", lambda path: None, "cannot be read (File name too long)"),
    ("pipe.txt", os.mkfifo, "save the content to a regular file first; this is a pipe"),
    ("socket.txt", listening, "this is a socket"),
    ("device.txt", lambda path: path.symlink_to("/dev/zero"), "this is a device"),
    (
        "folder",
        lambda path: path.mkdir(),
        "give a folder with a file that ends in",
    ),
    ("kind.pdf", content("text"), "unknown kind of file '.pdf'; known: .txt, .tsv"),
    ("kind.jsn", content("{}"), "unknown kind of file '.jsn' (did you mean '.json'?)"),
    ("kind", content("text"), "unknown kind of file ''"),
    ("kind.gz", zipped("text"), "unknown kind of file ''"),
    ("line\nend.txt", content(""), "is empty"),
    # text
    ("empty.txt", content(""), "give a file with a line of text; this file is empty"),
    ("empty.txt.gz", zipped(""), "is empty"),
    ("blank.txt", content(" \n\n\t\r\n"), "holds only blank lines"),
    ("mark.txt", content(b"\xef\xbb\xbf"), "holds only blank lines"),
    ("binary.txt", content(b"ok\n\x7fELF\0\0\1"), "line 2: holds NUL bytes, so it is not text"),
    ("utf16.txt", content("text".encode("utf-16-le")), "line 1: holds NUL bytes"),
    ("mark16.txt", content(b"\xff\xfea\n"), "line 1: invalid UTF-8 at byte 1 (0xff); convert"),
    (
        "latin.txt",
        content(b"one\ntwo\ncaf\xe9 noir\n"),
        "line 3: invalid UTF-8 at byte 4 (0xe9)",
    ),
    ("cut.txt", content("one\ntwo è".encode()[:-1]), "line 2: invalid UTF-8 at byte 5 (0xc3)"),
    ("surrogate.txt", content(b"\xed\xa0\x80\n"), "line 1: invalid UTF-8 at byte 1"),
    ("zipped.txt", zipped("text\n"), "so it is not text; end the name of this file in .gz"),
    (
        "long.txt",
        content(f"one\n{LONG}\n"),
        "passage or object; it has more than 100,000 characters",
    ),
    ("long.txt.gz", zipped(LONG), "line 1: break this line into lines"),
    ("wide.txt", content("𝄞" * 250_000), "line 1: break this line into lines"),
    # gzip
    ("plain.txt.gz", content("not compressed\n"), "is not a complete .gz file (Not a gzipped"),
    (
        "short.txt.gz",
        content(gzip.compress(os.urandom(999))[:500]),
        "is not a complete .gz file",
    ),
    ("none.txt.gz", content(b""), "is empty"),
    (
        "flipped.txt.gz",
        content(gzip.compress(b"text\n" * 999)[:20] + b"\xff" * 40),
        "is not a complete .gz file",
    ),
    (
        "sum.txt.gz",
        content(gzip.compress(b"a\n")[:-8] + bytes(8)),
        "not a complete .gz file (CRC check",
    ),
    # tab-separated
    ("mixed.tsv", content("a\tb\nc\td\te\n"), "line 2: give 2 fields, separated by tabs"),
    ("single.tsv", content("a\tb\n\nc\n"), "line 3: give 2 fields, separated by tabs"),
    # comma-separated
    (
        "ragged.csv",
        content("text,id\na,1\nb, c,2\n"),
        "this line has 3 fields, but the header has 2",
    ),
    ("quote.csv", content('text\n"a\nb\n'), "the CSV is broken"),
    ("inner.csv", content('text\n"a "b" c"\n'), "line 2: write each quote"),
    ("header.csv", content("text\n"), "give at least one record; this table holds no text"),
    (
        "columns.csv",
        content("id,body\n1,a\n"),
        "no column has a usual name, such as text or anch",
    ),
    ("twice.csv", content("text,text\na,b\n"), "rename a column; two are called 'text'"),
    (
        "endless.csv",
        content('text\n"' + "x\n" * 200_000),
        "the CSV is broken (quote without an end)",
    ),
    ("cell.csv", content('text\n"' + "x" * 60_000 + "\n" + "x" * 60_000 + '"\n'), "longer than"),
    # JSON lines
    (
        "broken.jsonl",
        content('{"text": "a"}\n{"text": "b\n'),
        "each line; this line is not JSON (Untermin",
    ),
    ("deep.jsonl", content("[" * 90_000), "nested too deeply"),
    *(
        (
            f"deep{depth}.json{ending}",
            content(f'{start}{{"text": {"[" * depth}"a"{"]" * depth}}}{end}'),
            "nested too deeply",
        )
        for depth in (100, 700, 5_000)
        for ending, start, end in (("l", "", "\n"), ("", "[\n", "\n]"))
    ),
    ("bare.jsonl", content("5\n"), "line 1: give an object such as"),
    (
        "list.jsonl",
        content('["a", "b"]\n["c", 1]\n'),
        "line 2: choose a column of text; column '2' holds 1 (int), not text",
    ),
    (
        "number.jsonl",
        content('{"text": 5}\n'),
        "line 1: choose a column of text; column 'text' holds 5 (int), not text",
    ),
    (
        "nested.jsonl",
        content('{"text": ["a", 1]}\n'),
        "choose a column of text; column 'text' holds 1 (int), not text",
    ),
    (
        "later.jsonl",
        content('{"text": "a"}\n' * 101 + '{"test": "b"}\n'),
        "none of them has the key 'test' (did you mean 'text'?)",
    ),
    (
        "half.jsonl",
        content('{"text": "\\ud83d"}\n'),
        "line 1: remove the NUL or unpaired surrogate from column 'text'",
    ),
    (
        "nul.jsonl",
        content('{"text": "a\\u0000"}\n'),
        "line 1: remove the NUL or unpaired surrogate from column 'text'",
    ),
    (
        "long.jsonl",
        content(f'{{"text": "{LONG[:200_000]}"}}'),
        "the text in column 'text' into sentences or passages; it is longer than",
    ),
    ("longer.jsonl", content(f'{{"text": "{LONG}"}}'), "line 1: break this line into lines"),
    ("nulls.jsonl", content('{"text": null}\n'), "holds no text"),
    ("empty.jsonl", content("\n"), "holds only blank lines"),
    # parquet
    ("text.parquet", content("text\n"), "not a parquet file, or is damaged"),
    ("empty.parquet", content(b""), "not a parquet file, or is damaged"),
    (
        "cut.parquet",
        content(lambda: table(text=["a"])[:-20]),
        "not a parquet file, or is damaged",
    ),
    ("damaged.parquet", content(damaged_table), "not a parquet file, or is damaged"),
    ("rows.parquet", content(lambda: table(text=[])), "holds no text"),
    ("number.parquet", content(lambda: table(text=[1.5])), "column 'text' holds 1.5 (float)"),
    (
        "columns.parquet",
        content(lambda: table(a=["x"], b=["y"])),
        "choose columns by name:",
    ),
    ("text.parquet.gz", zipped("text"), "unpack this file; a .parquet file must not be packed"),
]


@pytest.mark.parametrize(("name", "make", "message"), CASES, ids=[case[0][:20] for case in CASES])
def test_refused_on_one_line(tmp_path: Path, name: str, make: Maker, message: str) -> None:
    path = tmp_path / name
    make(path)
    with pytest.raises(InputError) as caught:
        list(read([path]))
    said = str(caught.value)
    assert message in said
    assert legible(str(path)) in said
    assert "\n" not in said
    assert len(said) < len(str(path)) + 400


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl", ".parquet"])
def test_a_column_that_is_not_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    rows: dict[str, bytes] = {
        ".tsv": b"title\tbody\na\tb\n",
        ".csv": b"title,body\na,b\n",
        ".jsonl": b'{"title": "a", "body": "b"}\n',
    }
    path.write_bytes(rows[suffix] if suffix in rows else table(title=["a"], body=["b"]))
    with pytest.raises(InputError) as caught:
        list(read([path], columns=["titel"]))
    assert str(caught.value) == (
        f"{path}: choose other columns; the table has no column 'titel' (did you mean 'title'?); "
        "its columns: 'title', 'body'"
    )


def test_records_of_two_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.tsv").write_text("a\tb\n")
    with pytest.raises(InputError) as caught:
        list(read([tmp_path]))
    assert str(caught.value) == (
        f"give only files with the same kind of records; {tmp_path / 'b.tsv'} holds pairs, but "
        f"{tmp_path / 'a.txt'} holds texts"
    )


def test_nothing_given() -> None:
    with pytest.raises(
        InputError, match="name at least one file or folder with text; none is named"
    ):
        read([])


def test_files_are_named_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(InputError, match="no such file"):
        read([tmp_path / "a.txt", tmp_path / "b.txt"])


def test_a_nested_value_is_refused_from_a_deep_stack() -> None:
    def parsed(frames: int) -> object:
        return parsed(frames - 1) if frames else parse_json("[" * 101 + "]" * 101)

    with pytest.raises(ValueError, match="nested too deeply"):
        parsed(sys.getrecursionlimit() - len(inspect.stack()) - 160)  # enough to parse it
