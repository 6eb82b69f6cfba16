"""Text that cannot be trained on, encoded or searched: lines, tables, pairs, folders of them."""

import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.data.test_bad_input import CASES, LONG, table
from tests.inputs.case import Bench, Case

Maker = Callable[[Path], object]


def train(bench: Bench, *arguments: object) -> list[object]:
    """Return a training that would begin if its data were good."""
    told = ["--encoder", bench.text, "--output", "out/run", "--no-progress", "--max-steps", 1]
    return ["train", "--batch-size", 2, *told, *arguments]


def content(path: Path, data: bytes | str) -> Path:
    """Write a file, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
    return path


def _one(name: str, make: Maker, says: str) -> Case:
    unnamed = len(name) > 255 or not name.isprintable()  # what cannot be a name is refused as one

    def made(room: Path, bench: Bench) -> Sequence[object]:
        make(room / name)
        return train(bench, name)

    shown = name if name.isprintable() else repr(name)
    return Case(f"text/{shown[:40]}", made, "" if unnamed else says)


# name of the file, content, flags, what is said
FILES: list[tuple[str, bytes | str, list[object], str]] = [
    ("old-mac.txt", "one line\ranother line\rand one more\r", [], "line ends"),
    ("one.txt", "a single sentence\n", [], "at least 2 different records"),
    ("same.txt", "the same\n" * 50, [], "at least 2 different records; found 1"),
    ("words-of-nothing.txt", "\u200b\n\ufeff\n\u2060\n" * 3, [], "holds no text"),
    ("late.txt", "good text\n" * 500 + "bad \xff text\n", [], "line 501: invalid UTF-8"),
    ("late-nul.txt", "good text\n" * 500 + "b\0d\n", [], "line 501: holds NUL bytes"),
    ("utf32.txt", "text\n".encode("utf-32"), [], "line 1"),
    ("small.txt", "one\ntwo\n", ["--batch-size", 99], "the data have only"),
    ("views.txt", "one\ntwo\n", ["--views", "pairs"], "needs two or more texts"),
    ("views.tsv", "one\ttwo\n", ["--views", "dropout"], "a record needs one text"),
    ("adjacent.txt", "one\n\ntwo\n\nthree\n", ["--views", "adjacent"], "at least 2 different"),
    ("empty.tsv", "\ta\nb\t\n\t\n", [], "holds no text"),
    ("third.tsv", "a\tb\tc\nd\te\tf\n", ["--objective", "barlowtwins"], "no hard negatives"),
    ("columns.tsv", "q\ta\nb\tc\n", ["--columns", "x,y"], "no column 'x'"),
    ("comma.csv", "text\nhello\n", ["--columns", ","], "--columns"),
    (
        "negative.csv",
        "anchor,positive,positive\na,b,c\n",
        [],
        "rename a column; two are called 'positive'",
    ),
    ("header.tsv", "anchor\tpositive\n", ["--columns", "anchor,positive"], "holds no text"),
    ("bomb.jsonl", '{"text": "' + "x" * 2_000_000 + '"}\n', [], "more than 1,000,000"),
    ("number.jsonl", '{"text": ' + "9" * 5000 + "}\n", [], "line 1"),
    ("nan.jsonl", '{"text": NaN}\n', [], "holds no text"),
    ("bool.jsonl", '{"anchor": true, "positive": "x"}\n', [], "holds True (bool)"),
    ("keys.jsonl", '{"a": 1, "b": 2}\n', [], "no column has a usual name"),
    ("objects.jsonl", '{"text": {"a": "b"}}\n', [], "not text"),
    ("two.jsonl", '{"text": "a"} {"text": "b"}\n', [], "this line is not JSON"),
    ("pair.jsonl", '{"anchor": "a"}\n', ["--columns", "anchor,positive"], "no column 'positive'"),
    ("half.jsonl", '{"text": "\\udc00\\ud800"}\n', [], "the NUL or unpaired surrogate"),
    (
        "wide.csv",
        "text," + ",".join(f"c{i}" for i in range(5000)) + "\nx\n",
        [],
        "1 fields, but the header",
    ),
    ("null.csv", "text\nx\0y\n", [], "NUL bytes"),
    ("cr.csv", "text\rone\rtwo\r", [], "line ends"),
    ("endless.txt", b"x" * 9_000_000, [], "more than 100,000 characters"),
    ("members.txt.gz", gzip.compress(b"ok\n") + b"junk behind", [], "gzip"),
    ("bomb.txt.gz", gzip.compress(bytes(50_000_000)), [], "NUL bytes"),
    ("long.txt.gz", gzip.compress(b"x" * 50_000_000), [], "more than 100,000 characters"),
    ("bomb.parquet.gz", gzip.compress(bytes(200_000_000), 9), [], "unpack this file"),
    ("twice.txt.gz", gzip.compress(gzip.compress(b"text\n")), [], "so it is not text"),
    ("binary.parquet", b"PAR1" + os.urandom(100) + b"PAR1", [], "not a parquet file"),
]


def _file(name: str, data: bytes | str, flags: list[object], says: str) -> Case:
    def made(room: Path, bench: Bench) -> Sequence[object]:
        if name.startswith("late."):
            content(room / name, data.encode("latin-1"))  # type: ignore[union-attr]
        else:
            content(room / name, data)
        return train(bench, name, *flags)

    return Case(f"text/of {name}", made, says)


def _types() -> Iterator[Case]:
    """Columns of parquet files that hold no text."""
    import datetime

    kinds: dict[str, list[object]] = {
        "integers": [1, 2],
        "bytes": [b"a", b"b"],
        "dates": [datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)],
        "structures": [{"a": 1}, {"a": 2}],
        "booleans": [True, False],
    }
    for kind, values in kinds.items():

        def made(room: Path, bench: Bench, values: list[object] = values) -> Sequence[object]:
            content(room / "t.parquet", table(text=values))
            return train(bench, "t.parquet")

        yield Case(f"text/parquet of {kind}", made, "choose a column of text")


def _folders() -> Iterator[Case]:
    def mixed(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "data/a.txt", "one\ntwo\n")
        content(room / "data/b.tsv", "one\ttwo\n")
        return train(bench, "data")

    def looping(room: Path, bench: Bench) -> Sequence[object]:
        (room / "data").mkdir()
        (room / "data/again").symlink_to(room / "data")
        return train(bench, "data")

    def around(room: Path, bench: Bench) -> Sequence[object]:
        for a, b in ("ab", "ba"):
            (room / a).mkdir()
            (room / a / "to").symlink_to(room / b)
        return train(bench, "a")

    def pipe_inside(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "data/a.txt", "one\ntwo\n")
        os.mkfifo(room / "data/b.txt")
        return train(bench, "data")

    def dangling_inside(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "data/a.txt", "one\ntwo\n")
        (room / "data/b.txt").symlink_to("nowhere")
        return train(bench, "data")

    def folder_called_file(room: Path, bench: Bench) -> Sequence[object]:
        (room / "data.txt").mkdir()
        return train(bench, "data.txt")

    def file_as_folder(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "a.txt", "one\ntwo\n")
        return train(bench, "a.txt/b.txt")

    def inside_itself(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "out/a.txt", "one\ntwo\n")
        return train(bench, "out")

    def one_bad(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "a.txt", "one\ntwo\n")
        content(room / "b.txt", b"\xff\xfe")
        return train(bench, "a.txt", "b.txt")

    yield Case("text/folder of two kinds", mixed, "give only files with the same kind of records")
    yield Case("text/folder that links to itself", looping, "no file with text")
    yield Case("text/folders that link to each other", around, "no file with text")
    yield Case("text/folder with a pipe", pipe_inside, "regular file first; this is a pipe")
    yield Case("text/folder with a dangling link", dangling_inside, "no such file")
    yield Case("text/folder called as a file", folder_called_file, "no file with text")
    yield Case("text/file as a folder", file_as_folder, "a.txt/b.txt")
    yield Case(
        "text/output inside the data", inside_itself, "choose an output folder outside the data"
    )
    yield Case("text/second of two files", one_bad, "b.txt")
    yield Case("text/no name", lambda room, bench: train(bench, ""), "one line of text")


def _used() -> Iterator[Case]:
    """The same reader, behind the verbs that use a model."""
    bad = [
        ("nowhere.txt", None, "no such file"),
        ("empty.txt", b"", "is empty"),
        ("binary.txt", b"\0\1\2", "NUL bytes"),
        ("latin.txt", b"caf\xe9\n", "invalid UTF-8"),
        ("pairs.tsv", b"a\tb\n", "holds pairs"),
        ("kind.doc", b"text", "unknown kind of file"),
        ("long.txt", LONG.encode(), "more than 100,000 characters"),
    ]
    for name, data, says in bad:
        for verb in ("encode", "search", "diagnose", "evaluate"):

            def made(
                room: Path,
                bench: Bench,
                name: str = name,
                data: bytes | None = data,
                verb: str = verb,
            ) -> Sequence[object]:
                if data is not None:
                    content(room / name, data)
                more: dict[str, list[object]] = {
                    "encode": [name, "-o", "out.npy"],
                    "search": [name, "query"],
                    "diagnose": ["--data", name],
                    "evaluate": ["--retrieval", name],
                }
                return [verb, bench.text, *more[verb]]

            if name == "pairs.tsv" and verb in ("diagnose", "evaluate"):
                continue  # they take pairs
            yield Case(f"text/{verb} {name}", made, says)
    no_text = "\udcff"  # how Python hands over a byte that is no UTF-8
    yield Case(
        "text/search for no UTF-8",
        lambda room, bench: ["search", bench.text, bench.sentences, no_text],
        "UTF-8",
    )
    yield Case(
        "text/search for nothing",
        lambda room, bench: ["search", bench.text, bench.sentences, " \t"],
        "the query is empty",
    )
    yield Case(
        "text/encode to another kind of file",
        lambda room, bench: ["encode", bench.text, bench.sentences, "-o", "out.csv"],
        "must end in .npy",
    )


def cases() -> Iterator[Case]:
    """Yield them."""
    for name, make, says in CASES:
        yield _one(name, make, says)
    for name, data, flags, says in FILES:
        yield _file(name, data, flags, says)
    yield from _types()
    yield from _folders()
    yield from _used()
