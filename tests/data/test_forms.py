"""What the columns of a table mean: the formats of this field, separators, counts, the one line."""

import csv
import io
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.core.spelling import as_flag, spelled
from isotrope.data.lines import open_bytes
from isotrope.data.records import Record
from isotrope.data.rows import Table
from isotrope.data.schemas import PAIRS, Reading
from isotrope.data.sources import is_in_memory, read, read_all, unread_labels, write_records

ADAPT = Path(__file__).parents[2] / "docs" / "guide" / "adapt.md"
N = range(4)
FLAG = [{"query": f"q{i}", "pos": [f"a{i}"], "neg": [f"w{i}", f"v{i}"]} for i in N]
FLAG_SCORES = [{**row, "pos_scores": [0.9], "neg_scores": [0.2, 0.1]} for row in FLAG]
PASSAGES = [
    {
        "query_id": str(i),
        "query": f"q{i}",
        "positive_passages": [{"docid": "p", "title": "T", "text": f"a{i}"}],
        "negative_passages": [{"docid": "n", "title": "", "text": f"w{i}"}],
    }
    for i in N
]
TALK = [
    {
        "messages": [{"role": "user", "content": f"q{i}"}],
        "positive_messages": [[{"role": "user", "content": f"a{i}"}]],
        "negative_messages": [[{"role": "user", "content": t}] for t in (f"w{i}", f"v{i}")],
    }
    for i in N
]
COLUMNS = [
    {"anchor": f"q{i}", "positive": f"a{i}", "negative_1": f"w{i}", "negative_2": f"v{i}"}
    for i in N
]
SCORED = [{"sentence1": f"s{i}", "sentence2": f"t{i}", "score": i / 4} for i in N]
LABELLED = [{"text": f"t{i}", "label": i % 2} for i in N]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def records(reading: Reading) -> list[tuple[str, ...]]:
    return [record.texts for record in reading]


QUERIES = [(f"q{i}", f"a{i}", f"w{i}", f"v{i}") for i in N]
PAIRED = [("t2", "t0"), ("t3", "t1"), ("t0", "t2"), ("t1", "t3")]
FORMS: list[tuple[str, list[dict[str, Any]], list[tuple[str, ...]], str]] = [
    (
        "flag",
        FLAG,
        [(f"q{i}", f"a{i}", f"w{i}", f"v{i}") for i in N],
        "2 negatives each, columns que",
    ),
    (
        "scores",
        FLAG_SCORES,
        [(f"q{i}", f"a{i}", f"w{i}", f"v{i}") for i in N],
        "scores pos_scores, neg",
    ),
    ("tevatron", PASSAGES, [(f"q{i}", f"T a{i}", f"w{i}") for i in N], "1 negative each"),
    ("swift", TALK, QUERIES, "2 negatives each"),
    (
        "columns",
        COLUMNS,
        [(f"q{i}", f"a{i}", f"w{i}", f"v{i}") for i in N],
        "negative_1, negative_2",
    ),
    (
        "labelled",
        LABELLED,
        [("t2", "t0"), ("t3", "t1"), ("t0", "t2"), ("t1", "t3")],
        "4 labelled te",
    ),
]


@pytest.mark.parametrize(("name", "rows", "expected", "line"), FORMS, ids=[f[0] for f in FORMS])
@pytest.mark.parametrize("source", ["jsonl", "list", "Dataset", "parquet"])
def test_formats_of_the_field(
    tmp_path: Path, name: str, rows: Any, expected: Any, line: str, source: str
) -> None:
    data: Any = rows
    if source == "jsonl":
        data = [jsonl(tmp_path / f"{name}.jsonl", rows)]
    elif source != "list":
        datasets = pytest.importorskip("datasets")
        data = datasets.Dataset.from_list(rows)
        if source == "parquet":
            data.to_parquet(str(tmp_path / "rows.parquet"))
            data = [tmp_path / "rows.parquet"]
    reading = read(data)
    assert records(reading) == expected
    assert line in str(reading)
    assert records(reading) == expected, "it can be read again"


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_columns_of_pairs_are_recognised_by_name_and_documented(names: tuple[str, ...]) -> None:
    expected = [(f"q{i}", f"a{i}", f"w{i}") for i in N]
    rows = [{"source": "web", **dict(zip(names, row, strict=True))} for row in expected]
    reading = read(rows)
    assert records(reading) == expected
    assert reading.names == [*names]
    page = ADAPT.read_text(encoding="utf-8")
    table = page.partition("| form | columns |")[2].partition("\n\n")[0]
    assert all(f"`{name}`" in table for name in names)


def test_scores_are_kept_for_each_text() -> None:
    assert [record.scores for record in read(FLAG_SCORES)] == [(0.9, 0.2, 0.1)] * 4
    with pytest.raises(
        InputError, match=r"keep only pairs with a high score .* holds scored pairs"
    ):
        records(read(SCORED))
    ids = [{"sentence1": f"q{i}", "sentence2": f"d{i}", "score": i / 4} for i in N]
    told = [[], []]
    texts = [{**row, "sentence1": f"a text {i}"} for i, row in enumerate(ids)]
    for rows, messages in zip((texts, ids), told, strict=True):
        with pytest.raises(InputError) as error:
            records(read(rows))
        messages.append(str(error.value))
    assert ["give the folder" in messages[0] for messages in told] == [False, True]
    scored = read(SCORED, scored=True)
    assert [record.scores for record in scored] == [(i / 4,) for i in N]
    assert scored.kind == "scored pairs"


@pytest.mark.parametrize("kind", [Decimal, np.float32, np.float16, Fraction])
def test_numbers_of_other_libraries_are_numbers(kind: Callable[[float], Any]) -> None:
    rows = [(f"s{i}", f"t{i}", kind(i / 4)) for i in N]
    assert [record.scores for record in read(rows, scored=True)] == [(i / 4,) for i in N]
    listed = [{**row, "pos_scores": [kind(0.5)], "neg_scores": [kind(0.25)] * 2} for row in FLAG]
    assert [record.scores for record in read(listed)] == [(0.5, 0.25, 0.25)] * 4
    grouped = [{**row, "group": kind(i / 2)} for i, row in enumerate(SCORED)]
    marks = [r.group for r in read(grouped, columns=["sentence1", "sentence2"], groups="group")]
    assert marks == ["0", "0.5", "1", "1.5"]


def test_decimals_of_parquet_are_scores(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{**row, "score": Decimal(i) / 4} for i, row in enumerate(SCORED)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "scored.parquet")
    scored = read([tmp_path / "scored.parquet"], scored=True)
    assert [record.scores for record in scored] == [(i / 4,) for i in N]


def test_labels_of_one_text_each_are_no_empty_table() -> None:
    alone = [{"text": f"text {i}", "label": i} for i in range(3)]
    with pytest.raises(InputError, match=r"holds no record \(3 rows with a label that no other"):
        list(read(alone))


@pytest.mark.parametrize("size", [2, 6])
def test_a_text_of_two_labels_is_on_one_side_only(size: int) -> None:
    """The label b has one text on a side, which the label a has on this side, too."""
    for one, held in (("held 0", True), ("text 0", False)):
        rows = [{"text": f"{side} {i}", "label": "a"} for side in ("held", "text") for i in N]
        other = "text" if held else "held"
        rows += [{"text": f"{other} b{i}", "label": "b"} for i in range(size - 1)]
        reading = read([*rows, {"text": one, "label": "b"}])
        reading.holds_out = lambda text: text.startswith("held")
        for record in reading:
            assert one not in record.texts or record.texts[0].startswith(one[:4])


def test_labels_keep_rows_together(tmp_path: Path) -> None:
    labelled = [*LABELLED, {"text": "alone", "label": 7}, {"text": "none", "label": None}]
    reading = read(labelled)
    assert {(*record.texts, record.group) for record in reading} == {
        ("t2", "t0", "0"), ("t0", "t2", "0"), ("t3", "t1", "1"), ("t1", "t3", "1"),
    }  # fmt: skip
    assert dict(reading.left) == {"no label": 1, "a label that no other row has": 1}
    assert records(read(labelled, groups="label")) == [(row["text"],) for row in labelled]
    for value, mark in ((1.0, "1"), (True, "True"), ("1.0", "1"), (0.5, "0.5"), (None, "")):
        (record,) = read([{"text": "a", "mark": value}], groups="mark")
        assert record.group == mark
    with pytest.raises(InputError, match="column 'mark' holds"):
        list(read([{"text": "a", "mark": [1]}], groups="mark"))
    file = tmp_path / "data.jsonl"
    assert write_records(LABELLED, [], file) is not None
    assert records(read([file])) == records(read(LABELLED))


def test_negatives_and_scores_of_late_rows_only(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"query": f"q{i}", "pos": [f"a{i}"], "neg": [f"n{i}"] if i > 120 else [], "mark": i}
        for i in range(130)
    ]
    scored = [
        {**row, "pos_scores": [0.5] if row["neg"] else [], "neg_scores": [0.1] * len(row["neg"])}
        for row in rows
    ]
    for data, groups in ((rows, None), (rows, "mark"), (scored, None)):
        file = tmp_path / f"{len(data[0])} {groups}.jsonl"
        assert write_records(data, [], file, groups=groups) is not None
        (again, given) = (
            [(r.texts, r.group, r.scores) for r in read(source, groups=groups)]
            for source in ([file], data)
        )
        assert again == given


def test_a_row_with_several_positives_and_rows_without_negatives() -> None:
    rows = [
        {"query": "q", "pos": ["a", "b"], "neg": ["n"], "pos_scores": [2, 1], "neg_scores": [0]},
        {"query": "r", "pos": ["c"], "neg": [], "pos_scores": [3], "neg_scores": []},
        {"query": "s", "pos": [], "neg": ["m"], "pos_scores": [], "neg_scores": []},
    ]
    reading = read(rows)
    assert records(reading) == [("q", "a", "n"), ("q", "b", "n"), ("r", "c")]
    assert [record.scores for record in reading] == [(2, 0), (1, 0), (3,)]
    assert str(reading) == (
        "read the data: 3 pairs with 0 to 1 negatives each, columns query, pos, neg, scores "
        "pos_scores, neg_scores; left out: 1 row with an empty text (row 3)"
    )


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize(
    "header", [("anchor", "positive"), ("question", "answer"), ("Anchor", "Positive")]
)
def test_separators_are_recognised(
    tmp_path: Path, suffix: str, separator: str, header: tuple[str, str]
) -> None:
    rows = [("one; or, two", "yes, it is"), ("three", 'four "five"')]
    body = io.StringIO()
    csv.writer(body, delimiter=separator).writerows([header, *rows])
    path = tmp_path / f"a{suffix}"
    text = body.getvalue()
    if (suffix, separator) == (".tsv", "\t"):  # which knows no quotes
        text = "\r\n".join("\t".join(row) for row in (header, *rows))
    path.write_text("\ufeff" + text, encoding="utf-8", newline="")
    reading = read([path])
    assert records(reading) == rows
    names = {",": "commas", ";": "semicolons", "\t": "tabs"}
    assert f"(separated by {names[separator]})" in str(reading)


def test_unknown_names_with_a_semicolon_are_proposed_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("nr;die Frage;Antwort\n1;wo, bitte?;hier\n2;wann?;jetzt\n")
    with (
        spelled(as_flag),
        pytest.raises(InputError, match="choose columns by name: --columns") as caught,
    ):
        list(read([path]))
    with spelled(as_flag):
        message = str(caught.value)
    columns = shlex.split(message.partition("--columns ")[2])[0].rstrip(";:,")
    assert columns == "die Frage,Antwort", "the first two columns of text"
    assert records(read([path], columns=columns.split(",")))[0] == ("wo, bitte?", "hier")
    path.write_text("nr;a\n1;2\n")
    with pytest.raises(InputError, match="no column of this table holds text"):
        list(read([path]))


@pytest.mark.parametrize(("choose", "columns"), [(2, "frage,antwort"), (1, "antwort")])
def test_the_columns_with_the_longest_texts_are_proposed(
    tmp_path: Path, choose: int, columns: str
) -> None:
    path = tmp_path / "faq.csv"
    path.write_text(
        "kategorie,frage,antwort,geaendert,quelle\n"
        f"Konto,Wie setze ich es?,Auf der Seite der Anmeldung.,2024-01-02,{'https://a' * 9}\n"
        "Versand in die EU,Wann kommt mein Paket?,In zwei bis drei Werktagen.,2024-03-02,b\n"
    )
    with spelled(as_flag), pytest.raises(InputError) as caught:
        list(read([path], choose=choose))
    with spelled(as_flag):
        assert f"--columns {columns};" in str(caught.value)


def test_a_carriage_return_in_a_cell_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'anchor,positive\na,one\rtwo\n"b\rc","d\r\ne"\n')
    assert records(read([path])) == [("a", "one\rtwo"), ("b\rc", "d\ne")]


def test_empty_cells_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1,first\n2,\n\n3,NaN\n4,third\n")
    reading = read([path])
    assert [(r.texts, r.line, r.opens) for r in reading] == [
        (("first",), 2, True),
        (("third",), 6, True),
    ]
    assert str(reading) == (
        "read a.csv: 2 single texts from 4 rows, columns text (separated by commas); not read: id; "
        "left out: 2 rows with an empty text (the first is line 3)"
    )


ROWS = [("question one", "answer one"), ("question two", "answer two")]
JSON = [{"anchor": a, "positive": b} for a, b in ROWS]


def delimited(separator: str) -> str:
    return "".join(f"{separator.join(row)}\n" for row in [("anchor", "positive"), *ROWS])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bars.csv", delimited("|")),
        ("bars.tsv", delimited("|")),
        ("colons.csv", delimited(":")),
        ("said.csv", "sep=;\n" + delimited(";")),
        ("said_by_excel.csv", '\ufeff"sep=,"\r\n' + delimited(",").replace("\n", "\r\n")),
        ("an_empty_column.tsv", delimited("\t").replace("\n", "\t\n")),
        ("an_own_column.tsv", "my id\t" + delimited("\t").replace("\nq", "\n7\tq")),
        ("lists.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS)),
        ("whole.json", json.dumps([list(row) for row in ROWS])),
        ("rows.json", json.dumps({"data": JSON}, indent=1)),
        ("one_line.json", json.dumps({"data": JSON})),
        ("key_first.json", '{"train": [\n' + ",\n".join(map(json.dumps, JSON)) + "\n]}"),
        ("with_first.json", '{"train": [' + ",\n".join(map(json.dumps, JSON)) + "]}"),
        ("commas_first.json", "[" + "\n,".join(map(json.dumps, JSON)) + "\n]"),
        ("lists_of_one_row.jsonl", "".join(json.dumps([row]) + "\n" for row in JSON)),
        ("lists_of_one_list.jsonl", "".join(json.dumps([row]) + "\n" for row in ROWS)),
        ("key_alone.json", '{"train":\n' + json.dumps(JSON) + "\n}"),
        ("plural.json", json.dumps([{"query": a, "positives": [b]} for a, b in ROWS])),
    ],
)
def test_ways_to_write_pairs(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert records(read([tmp_path / name])) == ROWS


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (json.dumps([a for a, _ in ROWS]), [(a,) for a, _ in ROWS]),
        (json.dumps([a for a, _ in ROWS], indent=1), [(a,) for a, _ in ROWS]),
        (json.dumps(["one", "two", "three"]) + "\n\n", [("one",), ("two",), ("three",)]),
        ("".join(json.dumps(row) + "\n" for row in ROWS), ROWS),
        ("\n\n".join(json.dumps([*row, "other"]) for row in ROWS), [(*r, "other") for r in ROWS]),
    ],
)
def test_a_list_of_texts_is_a_file_of_single_texts(
    tmp_path: Path, content: str, texts: list[tuple[str, ...]]
) -> None:
    (tmp_path / "a.json").write_text(content)
    assert records(read([tmp_path / "a.json"])) == texts


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("between", ["\n", "\n\n \n"])
@pytest.mark.parametrize("first", [1, 2])
def test_rows_of_several_lines_with_lists_are_numbered(
    tmp_path: Path, suffix: str, between: str, first: int
) -> None:
    path = tmp_path / f"a{suffix}"
    pairs = [[f"q{i}", f"a{i}"] for i in range(5)]
    lists = ("", pairs[:first], pairs[first:4], pairs[4:])
    path.write_text(between.join(map(json.dumps, lists))[2:])
    assert [(r.line, [*r.texts]) for r in read([path])] == [*enumerate(pairs, start=1)]


def test_a_blank_line_between_lists_of_rows_ends_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('[["one"], ["two"]]\n\n[["three"]]\n')
    assert [(r.line, r.opens) for r in read([path])] == [(1, True), (2, False), (3, True)]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("row", [["q", "a"], {"query": "q", "answer": "a"}])
def test_a_list_of_one_row_is_a_row(tmp_path: Path, row: object, indent: int | None) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([row], indent=indent))
    assert records(read([path])) == [("q", "a")]


@pytest.mark.parametrize(
    ("name", "lines", "named"),
    [
        ("lines.jsonl", '\n["a", "b"]\n\n["c"]\n', "line 4"),
        ("lists.jsonl", '\n[["a", "b"], ["c", "d"]]\n\n[["e"]]\n', "row 3"),
        ("whole.json", '[\n["a", "b"],\n["c"]\n]', "row 2"),
        ("one.json", '[["a", "b"], ["c"]]', "row 2"),
        ("table.csv", "query,answer\n\na,b\nc,\n", "line 4"),
    ],
)
def test_skipped_rows_are_named_by_line_or_by_row(
    tmp_path: Path, name: str, lines: str, named: str
) -> None:
    (tmp_path / name).write_text(lines)
    reading = read([tmp_path / name])
    list(reading)
    assert reading.left_out.endswith(f"({named})")


def drain(path: Path) -> None:
    with open_bytes(path) as handle:
        while handle.read(1 << 20):
            pass


@pytest.mark.parametrize("compressed", ["gz", "bz2", "xz", "zst"])
def test_compressed_text(tmp_path: Path, compressed: str) -> None:
    import bz2
    import gzip
    import lzma

    pyarrow = pytest.importorskip("pyarrow")
    content = "".join(json.dumps(row) + "\n" for row in JSON).encode()
    bomb = b"\n" * ((1 << 25) + (1 << 20))
    pack: dict[str, Any] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    pack["zst"] = lambda raw: pyarrow.compress(raw, codec="zstd", asbytes=True)
    path = tmp_path / f"a.jsonl.{compressed}"
    path.write_bytes(pack[compressed](content))
    assert records(read([path])) == ROWS
    assert read_all(str(path)).sources == [path]
    path.write_bytes(pack[compressed](bomb))
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        drain(path)
    for damaged in (b"no archive", pack[compressed](content)[:20]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=rf"is not a complete \.{compressed} file"):
            records(read([path]))
    plain = tmp_path / "a.jsonl"
    plain.write_bytes(pack[compressed](content))
    with pytest.raises(
        InputError, match=rf"it is not text; end the name of this file in \.{compressed}"
    ):
        records(read([plain]))


@pytest.mark.parametrize("in_memory", [False, True])
def test_other_keys_may_come_late_if_the_columns_are_chosen(
    tmp_path: Path, *, in_memory: bool
) -> None:
    rows = [{"question": f"q{i}", "answer": f"a{i}", "topic": "t"} for i in range(110)]
    rows[105]["note"] = "late"
    path = tmp_path / "late.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = rows if in_memory else str(path)
    for groups in (None, "topic"):
        chosen = records(read_all(data, columns=["question", "answer"], groups=groups))
        assert chosen == [(f"q{i}", f"a{i}") for i in range(110)]
    with pytest.raises(InputError, match="none of them has the key 'note'"):
        records(read_all(data))


def test_files_of_arrow_and_parquet_bombs(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = pyarrow.Table.from_pylist(JSON)
    with pyarrow.ipc.new_file(str(tmp_path / "file.arrow"), table.schema) as file:
        file.write_table(table)
    feather.write_feather(table, str(tmp_path / "f.feather"))
    for name in ("file.arrow", "f.feather"):
        reading = read([tmp_path / name])
        assert records(reading) == records(reading) == ROWS, "it can be read again"
    bomb = pyarrow.table({"text": ["x" * (1 << 26)]})
    parquet.write_table(bomb, tmp_path / "b.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        records(read([tmp_path / "b.parquet"]))


def test_tables_that_unpack_to_more_than_they_say(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    nulls = pyarrow.table({"text": pyarrow.nulls(1 << 26)})
    long = pyarrow.table({"text": ["x" * (1 << 26)]})
    for name, table in (("nulls", nulls), ("long", long)):
        path = tmp_path / f"{name}.arrow"
        with pyarrow.ipc.new_file(str(path), table.schema, options=options) as file:
            file.write_table(table)
        with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
            records(read([path]))
    parquet.write_table(nulls, tmp_path / "n.parquet")
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        records(read([tmp_path / "n.parquet"]))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_damaged_headers_are_refused_in_one_line(tmp_path: Path, suffix: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = pyarrow.table({"text": ["a text", "another text"] * 20})
    path, random = tmp_path / f"a{suffix}", np.random.default_rng(0)
    write = parquet.write_table if suffix == ".parquet" else feather.write_feather
    write(table, path)
    whole, refusals = path.read_bytes(), []
    for _ in range(200):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            records(read([path]))
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > 100
    assert all(refusal.splitlines() == [refusal] for refusal in refusals)
    assert all(refusal.startswith(str(path)) for refusal in refusals)


@pytest.mark.parametrize("kind", ["parquet", "dictionary", "runs"])
@pytest.mark.parametrize("characters", [1 << 23, 90_000])
def test_a_text_that_a_table_holds_once_for_many_rows(
    tmp_path: Path, kind: str, characters: int
) -> None:
    """Repeated by a dictionary or a run of one entry, it would fill memory if all became cells."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows, text = 2_000, pyarrow.array(["x" * characters])
    places = pyarrow.array([0] * rows, pyarrow.int8())
    column = pyarrow.DictionaryArray.from_arrays(places, text)
    table = pyarrow.table({"anchor": column, "positive": column})
    path = tmp_path / ("a.parquet" if kind == "parquet" else "a.arrow")
    if kind == "parquet":
        parquet.write_table(table, path, compression="zstd", store_schema=False)
    else:
        if kind == "runs":
            run = pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([rows], "int32"), text)
            table = pyarrow.table({"anchor": run, "positive": run})
        options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        with pyarrow.ipc.new_file(str(path), table.schema, options=options) as file:
            file.write_table(table)
    before = pyarrow.default_memory_pool().max_memory()
    if characters < 1 << 20:
        assert sum(1 for _ in read([path])) == rows
    else:
        with pytest.raises(InputError, match="is longer than 100,000"):
            records(read([path]))
    assert pyarrow.default_memory_pool().max_memory() <= max(before, 1 << 27)


def test_the_line_of_an_error_counts_the_line_before_the_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('sep=;\nanchor;positive\n"a\nb";c\nd;e;f\n')
    with pytest.raises(InputError, match=r"line 5: .* 3 fields, but the header has 2"):
        records(read([path]))


def test_a_header_that_comes_again_is_no_pair(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(delimited(",") * 2)  # cat a.csv b.csv
    reading = read([path])
    assert records(reading) == ROWS * 2
    assert "left out: 1 row with a repeated header (line 4)" in str(reading)


def test_scores_of_margins_without_names(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("q\tp\tn\t0.9\t0.1\nr\to\tm\t0.8\t0.2\n")
    assert [(r.texts, r.scores) for r in read([path])] == [
        (("q", "p", "n"), (0.9, 0.1)),
        (("r", "o", "m"), (0.8, 0.2)),
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("query", "response", "label"),
        ("question1", "question2", "is_duplicate"),
        ("question", "answer", "label"),
        ("sentence_0", "sentence_1", "score"),
        ("sentence1", "sentence2", "gold_label"),
        ("query", "document", "relevance"),
        ("query", "passage", "relevance_label"),
        ("query", "document", "target"),
        ("question1", "question2", "duplicate"),
        ("anchor", "positive", "label"),  # 1 and 0, as mine_hard_negatives writes
    ],
)
def test_pairs_that_may_not_belong_together_are_refused_and_the_advice_works(
    names: tuple[str, str, str],
) -> None:
    rows = [dict(zip(names, (f"a{i}", f"b{i}", i % 2), strict=True)) for i in N]
    with spelled(as_flag), pytest.raises(InputError, match="holds scored pairs") as caught:
        list(read(rows))
    with spelled(as_flag):
        columns = shlex.split(str(caught.value).partition("--columns ")[2])[0].split(",")
    assert records(read(rows, columns=columns)) == [(f"a{i}", f"b{i}") for i in N]


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (("premise", "hypothesis", "label"), [0, 1, 2, 0]),
        (("sentence1", "sentence2", "gold_label"), ["entailment", "-", "neutral", "entailment"]),
    ],
)
def test_classes_of_entailment_are_no_scores(
    names: tuple[str, ...], values: list[int | str]
) -> None:
    """0 is entailment, so that the nearest pairs would have the lowest score."""
    rows = [dict(zip(names, (f"a{i}", f"b{i}", values[i]), strict=True)) for i in N]
    with pytest.raises(
        InputError, match="keep only the rows labelled entailment and remove the label column"
    ):
        list(read(rows, scored=True))


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (("question", "answer", "target"), lambda i: f"a free text {i}"),
        (("question", "answer", "target"), lambda i: f"https://example.org/{i}"),
        (("question", "answer", "topic"), lambda i: i % 2),
        (("anchor", "positive", "label"), lambda i: i),  # as `isotrope audit` writes
        (("anchor", "positive", "score"), lambda i: i / 8),
    ],
)
def test_other_columns_beside_pairs_are_not_read(
    names: tuple[str, str, str], value: Callable[[int], object]
) -> None:
    rows = [dict(zip(names, (f"a{i}", f"b{i}", value(i)), strict=True)) for i in range(8)]
    reading = read(rows)
    assert records(reading) == [(f"a{i}", f"b{i}") for i in range(8)]
    (part,) = reading.not_read
    assert part.startswith(f"not read: {names[2]}")


@pytest.mark.parametrize("names", [("query", "answer"), ("anchor", "positive")])
@pytest.mark.parametrize(("name", "values"), [("labels", [1, 0, 0]), ("scores", [0.9, 0.8, 0.95])])
@pytest.mark.parametrize("kind", [list, np.array])
def test_a_list_of_texts_with_negatives_is_no_list_of_positives(
    names: tuple[str, str], name: str, values: list[float], kind: Callable[[list[float]], Any]
) -> None:
    texts = [[f"p{i}", f"n{i}", f"m{i}"] for i in N]
    rows = [{names[0]: f"q{i}", names[1]: texts[i], name: kind(values)} for i in N]
    with pytest.raises(InputError, match="holds scored pairs"):
        list(read(rows))
    found = [(*record.texts, *record.scores) for record in read(rows, scored=True)]
    assert found[:3] == [("q0", text, of) for text, of in zip(texts[0], values, strict=True)]
    assert len(found) == 12


@pytest.mark.parametrize("pair", ["query positive", "anchor pos", "query passage", "query pos"])
@pytest.mark.parametrize(
    "negatives",
    [
        *("neg", "negs", "negative", "negatives", "hard_negative", "hard_negatives"),
        *("negative_passage", "neg_1 neg_2", "negative_1 negative_2", "hard_negative_1"),
    ],
)
def test_hard_negatives_in_their_usual_spellings(pair: str, negatives: str) -> None:
    first, second = pair.split()
    first = "query" if second == "pos" else first
    row = {first: "q", second: "p", **{name: f"of {name}" for name in negatives.split()}}
    row |= {"negative_ids": "7"}
    assert records(read([row])) == [("q", "p", *(f"of {name}" for name in negatives.split()))]


def test_passages_of_dpr_are_the_texts(tmp_path: Path) -> None:
    row = {
        "question": "who?",
        "answers": ["she"],
        "positive_ctxs": [{"title": "T", "text": "it was her", "score": 1}],
        "negative_ctxs": [{"title": "O", "text": "at random"}],
        "hard_negative_ctxs": [{"title": "U", "text": "it was him"}],
    }
    (tmp_path / "a.json").write_text(json.dumps([row, row], indent=1))
    reading = read([tmp_path / "a.json"])
    assert records(reading) == [("who?", "T it was her", "U it was him")] * 2
    assert reading.not_read == ["not read: answers, negative_ctxs"]


def test_a_label_beside_pairs_can_be_read_as_groups(tmp_path: Path) -> None:
    file = tmp_path / "mined.jsonl"
    file.write_text('{"anchor": "a", "positive": "b", "label": 0, "group": 1}\n' * 2)
    hints = []
    for groups in (None, "label", "group"):
        reading = read([file], groups=groups)
        assert len([*reading]) == 2
        hints.append("`--groups label`" in str(reading))
    assert hints == [True, False, False]


def table(path: Path, *cells: Callable[[int], object]) -> Path:
    lines = ("\t".join(str(cell(i)) for cell in cells) for i in range(30))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_numbers_in_a_table_without_names(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    text, other, number = "text {}".format, "other {}".format, (700).__add__
    pairs = [(f"text {i}", f"other {i}") for i in range(30)]
    for cells in ((number, text, other), (text, other, number), (number, text, number, other)):
        reading = read([table(path, *cells)])
        assert records(reading) == pairs
        assert "not read: " in str(reading)
    assert records(read([table(path, number, text)])) == [(f"text {i}",) for i in range(30)]
    for cells in ((lambda i: i % 3, text), (text, lambda i: i % 3)):  # labels
        reading = read([table(path, *cells)], paired=False)
        assert [(r.texts, r.group) for r in reading] == [
            ((f"text {i}",), f"{i % 3}") for i in range(30)
        ]
    for score in (lambda i: i % 6, lambda i: i + 0.5):
        scored = read([table(path, text, other, score)], scored=True)
        assert [r.scores for r in scored] == [(score(i),) for i in range(30)]
    with pytest.raises(InputError, match="holds scored pairs"):  # ids of queries, and scores
        list(read([table(path, lambda i: i // 4, lambda i: i / 8, text, other)]))
    assert records(read([table(path, text, number)])) == [(f"text {i}",) for i in range(30)]
    answers = (lambda i: f"{i}" * (i % 3 == 0) or f"word {i}", lambda i: 7 * i % 30)
    for cells in ((number, number), *((text, answer) for answer in answers)):
        expected = [tuple(str(cell(i)) for cell in cells) for i in range(30)]
        assert records(read([table(path, *cells)])) == expected


@pytest.mark.parametrize("rows", [2, 30])
@pytest.mark.parametrize("answer", [lambda i: i % 2, lambda i: i % 20, lambda i: 1800 + i])
def test_texts_that_spell_numbers_are_answers_where_numbers_have_a_type(
    tmp_path: Path, answer: Callable[[int], int], rows: int
) -> None:
    pairs = [(f"what is {i}?", str(answer(i))) for i in range(rows)]
    assert records(read(pairs)) == pairs
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    assert records(read([path])) == pairs
    labelled = read([(text, int(answer)) for text, answer in pairs], paired=False)
    texts = [record.texts for record in labelled]
    assert texts == [(text,) for text, _ in pairs]


@pytest.mark.parametrize("grades", [13, 30])
def test_different_grades_are_no_ids(tmp_path: Path, grades: int) -> None:
    path = table(tmp_path / "a.tsv", "a {}".format, "b {}".format, lambda i: 37 * i % 101)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:grades]))
    scored = read([path], scored=True)
    assert {len(record.scores) for record in scored} == {1}


def test_files_of_a_folder_that_are_not_read_are_counted(tmp_path: Path) -> None:
    for name in ("a.txt", "README.md", "b.docx", "c.docx", "train.parquet", "test.parquet"):
        (tmp_path / name).write_text("one\ntwo\n")
    (tmp_path / "train.parquet").unlink()
    (tmp_path / "test.parquet").unlink()
    reading = read([tmp_path])
    list(reading)
    assert "files not read: 2 .docx, 1 .md" in str(reading)


def test_tables_without_names(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\tc\td\ne\tf\tg\th\n")
    reading = read([path])
    assert records(reading) == [("a", "b", "c", "d"), ("e", "f", "g", "h")]
    assert str(reading).endswith(
        "2 pairs with 2 negatives each, no header, separated by tabs, first record a | b | c | d"
    )
    for rows in ("4.5\ta\tb\n1\tc\td\n", "a\tb\t4.5\nc\td\t1\n"):
        path.write_text(rows)
        assert [(r.texts, r.scores) for r in read([path], scored=True)] == [
            (("a", "b"), (4.5,)),
            (("c", "d"), (1.0,)),
        ]
    for wanted in ({"columns": ["x"]}, {"groups": "x"}):
        with pytest.raises(InputError, match=r"choose columns by number .* has no column 'x'"):
            list(read([path], **wanted))  # type: ignore[arg-type]
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(InputError, match="the columns have no names"):
        list(read([tmp_path / "a.txt"], columns=["x"]))


@pytest.mark.parametrize(
    ("encoding", "texts"),
    [
        ("cp1252", ["It’s one", "second – line"]),
        ("latin1", ["café crème", "naïve garçon"]),
        ("utf-16", ["it is one", "second line"]),
        ("utf-16-le", ["it is one", "second line"]),
    ],
)
def test_text_of_another_encoding_is_converted_as_the_message_says(
    tmp_path: Path, encoding: str, texts: list[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\n".join(texts).encode(encoding))
    with pytest.raises(InputError, match="convert the file to UTF-8") as caught:
        list(read([path]))
    command = str(caught.value).rpartition("for example with ")[2]
    text = subprocess.run([*shlex.split(command), str(path)], capture_output=True, check=True)
    path.write_bytes(text.stdout)
    assert records(read([path])) == [(text,) for text in texts]


def test_records_say_where_they_are(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", FLAG)
    assert next(iter(read([path]))) == Record(("q0", "a0", "w0", "v0"), path, 1, opens=True)


@pytest.mark.parametrize(
    ("content", "columns", "noted"),
    [
        ("an oak\nan elm\n", None, True),
        ("an oak,a tree\nan elm,a leaf\n", ["1", "2"], True),
        ("an oak,a tree\nan elm,a leaf\n", ["an oak", "a tree"], False),
        ("text\nan elm\n", None, False),
    ],
)
def test_a_header_of_unknown_names_is_reported(
    tmp_path: Path, content: str, columns: list[str] | None, *, noted: bool
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    reading = read([path], columns=columns)
    assert len(records(reading)) == 1
    assert ("; the first line is the header; if it is a record" in str(reading)) == noted


def test_a_text_that_names_a_column_is_no_header(tmp_path: Path) -> None:
    words = ["oak", "text", "elm", "text"]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(words))
    for source in (words, [path]):
        assert records(read_all(source) if source is words else read(source)) == [
            (w,) for w in words
        ]
    assert records(read_all([("1", "2"), ("a", "b")])) == [("1", "2"), ("a", "b")]


def test_rows_of_arrays_and_of_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ["7", "8"], "anchor": ["a", "c"], "positive": ["b", "d"]})
    pairs = frame[["anchor", "positive"]]
    for data in (
        pairs.values,
        list(pairs.to_numpy(dtype=str)),
        [row for _, row in frame.iterrows()],
        pandas.DataFrame(pairs.values).to_dict("records"),
    ):
        assert records(read_all(data)) == [("a", "b"), ("c", "d")]
    assert records(read_all(pairs.to_numpy(dtype=str)[:, 0])) == [("a",), ("c",)]


def test_scores_stay_with_their_texts() -> None:
    row = {
        "query": "q",
        "pos": ["", "p", None, "o"],
        "neg": [None, "n", " ", "m"],
        "pos_scores": [0.9, 0.8, 0.7, 0.6],
        "neg_scores": [0.5, 0.4, 0.3, 0.2],
    }
    assert [(r.texts, r.scores) for r in read([row])] == [
        (("q", "p", "n", "m"), (0.8, 0.4, 0.2)),
        (("q", "o", "n", "m"), (0.6, 0.4, 0.2)),
    ]
    wide = {
        "anchor": "q",
        "positive": "p",
        "negative_1": "",
        "negative_2": "n",
        "scores": [3, 2, 1],
    }
    assert [(r.texts, r.scores) for r in read([wide])] == [(("q", "p", "n"), (3, 1))]


@pytest.mark.parametrize(
    "content",
    [
        lambda rows: json.dumps(rows),
        lambda rows: "\n" + json.dumps(rows, indent=1),
        lambda rows: "\n\n" + json.dumps({"data": rows}),
        lambda rows: "[" + ",\n".join(map(json.dumps, rows)) + "]",
    ],
)
def test_a_long_list_in_one_json_file(tmp_path: Path, content: Callable[[Any], str]) -> None:
    rows = [{"anchor": f"question {i} {'x' * 90}", "positive": f"answer {i}"} for i in range(9_000)]
    path = tmp_path / "a.json"
    path.write_text(content(rows))
    assert path.stat().st_size > 1_000_000
    assert records(read([path])) == [tuple(row.values()) for row in rows]


def test_a_text_that_is_the_name_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "oaks" / "old").mkdir(parents=True)
    (tmp_path / "oaks" / "old" / "notes.pdf").touch()
    assert is_in_memory(["oaks", "elms"])
    (tmp_path / "oaks" / "old" / "a.tsv.gz").touch()
    assert not is_in_memory(["oaks"])
    with pytest.raises(InputError, match="'oaks' names a file, but 'elms' does not"):
        is_in_memory(["oaks", "elms"])


RENAMED = [
    ("text,label=intent", "text,intent", "labelled texts"),
    ("TEXT=request,Label=intent", "request,intent,label", "labelled texts"),
    ("text=2,label=1", "intent,request", "labelled texts"),
    ("anchor=frage,positive=antwort", "score,antwort,frage", "pairs"),
    ("sentence1=a,sentence2=b,score=sterne", "a,b,sterne", "scored pairs"),
    ("question=a,answers=b,hard_negative_1=c", "a,b,c", "pairs"),
    ("text=frage", "frage,label", "texts"),
]


@pytest.mark.parametrize(("columns", "header", "kind"), RENAMED)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ""])
def test_a_column_is_read_under_another_name(
    columns: str, header: str, kind: str, suffix: str, tmp_path: Path
) -> None:
    """It is read as a file whose header has the other names, and no other columns."""
    names = header.split(",")
    rows = [{name: str(i % 3 + len(name)) for name in names} for i in range(40)]
    file = tmp_path / f"a{suffix}"
    if suffix == ".jsonl":
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif suffix:
        lines = [names, *(list(row.values()) for row in rows)]
        lines = lines[1:] if suffix == ".tsv" and "text=2" in columns else lines  # without a header
        file.write_text("".join(f"{(',', chr(9))[suffix == '.tsv'].join(a)}\n" for a in lines))
    reading = read([file] if suffix else rows, columns=columns.split(","), scored=True)
    found = [(*record.texts, record.group, *record.scores) for record in reading]
    own = {(pair := each.partition("="))[0]: pair[2] or each for each in columns.split(",")}
    own = {name: names[int(of) - 1] if of.isdecimal() else of for name, of in own.items()}
    expected = read([{name: row[of] for name, of in own.items()} for row in rows], scored=True)
    assert found == [(*r.texts, r.group, *r.scores) for r in expected]
    assert reading.kind == expected.kind == kind


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_column_whose_name_has_an_equals_sign_is_not_renamed(suffix: str, tmp_path: Path) -> None:
    file, mark = tmp_path / f"a{suffix}", ",\t"[suffix == ".tsv"]
    file.write_text(f"c{mark}a=b{mark}b\n" + f"x{mark}y{mark}z\n" * 3)
    assert records(read([file], columns=["c", "a=b"])) == [("x", "y")] * 3


def test_new_names_of_columns_must_have_a_meaning(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,intent,premise\n" + "a b,c d,e\n" * 3)
    refused = {
        "text,lable=intent": "unknown NAME 'lable' (did you mean 'label'?); known: text, ",
        "intent,label=premise": "unknown NAME 'intent'",
        "text,label=intend": "no column 'intend' (did you mean 'intent'?)",
        "text=premise,text": "two are called 'text'",
        "anchor=text,label=intent": "no column has a usual name",
        "premise,hypothesis=text,label=intent": "keep only the rows labelled entailment",
    }
    for columns, problem in refused.items():
        with pytest.raises(InputError, match=re.escape(problem)):
            list(read([file], columns=columns.split(",")))


def test_a_repeated_header_of_renamed_columns_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("request,intent\na b,x\nc d,x\nrequest,intent\ne f,x\n")
    reading = read([file], columns=["text=request", "label=intent"], paired=False)
    assert records(reading) == [("a b",), ("c d",), ("e f",)]
    assert [*reading.left] == ["a repeated header"]


TOPICS = ("lost card", "late payment", "exchange rate")


@pytest.mark.parametrize(
    ("names", "columns", "groups", "advised"),
    [
        ("text,intent", "", None, "text,label=intent"),
        ("note,text,intent", "", None, "text,label=intent"),
        ("request,intent", "request,intent", None, "text=request,label=intent"),
        ("question,answer", "", None, "text=question,label=answer"),
        ("text,intent", "", "intent", "text,label=intent"),
        ("text,intent", "text", "intent", "text,label=intent"),
        ("text,intent", "text", None, None),  # one column was meant
        ("text,label", "", None, None),
        ("text,intent", "text,label=intent", None, None),
        ("text,intent,more", "text,intent,more", None, None),  # with hard negatives
    ],
)
def test_labels_that_are_not_read_as_such_are_named(
    names: str, columns: str, groups: str | None, advised: str | None
) -> None:
    def texts(i: int, last: str) -> list[str]:
        own = {
            "note": "a",
            "label": TOPICS[i % 3],
            "intent": TOPICS[i % 3],
            "answer": TOPICS[i % 3],
        }
        return [own.get(name, f"words {i}") for name in last.split(",")]

    rows = [dict(zip(names.split(","), texts(i, names), strict=True)) for i in range(30)]
    reading = read(rows, columns=list(filter(None, columns.split(","))), groups=groups)
    next(iter(reading))
    assert re.findall("`--columns (.*)`", unread_labels(reading)) == [advised] * bool(advised)
    if advised:  # the advice works
        labelled = read(rows, columns=advised.split(","), paired=False)
        assert {record.group for record in labelled} == {*TOPICS}


@pytest.mark.parametrize(
    "value",
    [
        lambda i: TOPICS[0],
        lambda i: f"topic {i % 4}",  # too few rows of each
        lambda i: f"{i % 3}",
        lambda i: i % 3,
        lambda i: f"2026-01-0{i % 3 + 1}",
        lambda i: f"please call us again at {TOPICS[i % 3]}",  # answers of an FAQ
        lambda i: [TOPICS[i % 3]],
        lambda i: None,
    ],
)
def test_other_columns_are_not_called_labels(value: Callable[[int], object]) -> None:
    reading = read([{"text": f"words {i}", "other": value(i)} for i in range(30)])
    next(iter(reading))
    assert not unread_labels(reading)


def test_labels_are_counted_in_the_first_rows_only() -> None:
    def cells(names: Any) -> Any:
        for i in range(20_000):
            assert names == ["text"] or i < 10_000
            yield i + 1, tuple(f"words {i}" if n == "text" else TOPICS[i % 3] for n in names)

    reading = Reading([Table(Path("a"), ("text", "intent"), cells)])
    next(iter(reading))
    assert "(3 values in 10,000 rows)" in unread_labels(reading)


def test_a_column_that_cannot_be_decoded_is_no_label() -> None:
    """Decoders of pictures and sound raise errors of their own."""

    def cells(names):
        if names == ["picture"]:
            raise OSError("cannot identify image file")
        return ((line, ("a" if line % 2 else "b",)) for line in range(40))

    table = Table(Path("data"), ("text", "picture", "kind"), cells)
    assert table.labels(["picture", "kind"]) == ("kind", 2, 40)


@pytest.mark.parametrize(("groups", "named"), [("0123456789", False), ("abcdefghij", True)])
def test_groups_that_are_numbers_are_no_labels(tmp_path: Path, groups: str, named: bool) -> None:
    """The groups of an audit are numbers."""
    path = tmp_path / "a.jsonl"
    rows = [(f"text {i}", groups[i % 10]) for i in range(200)]
    cells = [{"text": text, "kind": int(g) if g.isdigit() else g} for text, g in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in cells))
    reading = read([path], groups="kind")
    next(iter(reading))
    assert ("label=kind" in unread_labels(reading)) == named
