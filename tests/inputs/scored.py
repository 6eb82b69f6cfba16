"""Data to score on that are no such data: STS, transfer, retrieval, labelled texts, dev sets."""

import gzip
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.inputs.case import Bench, Case
from tests.inputs.text import content, train

# of one STS file, for `evaluate --sts` and for `train --dev`
STS: list[tuple[str, bytes | str, str]] = [
    ("fields.tsv", "3\tone\n", "no record"),
    ("score.tsv", "three\ta\tb\n", "this line is no scored pair"),
    ("nan.tsv", "nan\ta\tb\n1\tc\td\n", "this line is no scored pair"),
    ("inf.tsv", "1e999\ta\tb\n1\tc\td\n", "this line is no scored pair"),
    ("sentence.tsv", "1\ta\t\n2\tb\tc\n", "with an empty text"),
    ("one-score.tsv", "1\ta\tb\n1\tc\td\n", "different scores"),
    ("empty.tsv", "", "is empty"),
    ("header.tsv", "score\tsentence1\tsentence2\n", "holds no text"),
    ("kind.doc", "1\ta\tb\n", "unknown kind of file"),
    ("bytes.tsv", b"1\ta\xff\tb\n", "invalid UTF-8"),
    ("nul.tsv", b"1\ta\0\tb\n", "NUL bytes"),
    ("columns.csv", "a,b\n1,2\n", "no column has a usual name"),
    ("cell.csv", "score,sentence1,sentence2\n1,,b\n2,c,d\n", "with an empty text"),
    ("digits.jsonl", '{"score": ' + "9" * 400 + ', "sentence1": "a", "sentence2": "b"}\n', "score"),
    (
        "digits-5000.jsonl",
        '{"score": ' + "9" * 5000 + ', "sentence1": "a", "sentence2": "b"}\n',
        "line 1",
    ),
    ("list.jsonl", '{"score": [1], "sentence1": "a", "sentence2": "b"}\n', "different scores"),
    ("bool.jsonl", '{"score": 1, "sentence1": true, "sentence2": "b"}\n', "not text"),
    (
        "half.jsonl",
        '{"score": 1, "sentence1": "\\ud800", "sentence2": "b"}\n',
        "the NUL or unpaired surrogate",
    ),
    ("broken.tsv.gz", b"no gzip", "not a complete .gz file"),
    ("cut.tsv.gz", gzip.compress(os.urandom(500))[:200], "not a complete .gz file"),
    ("broken.parquet", b"PAR1", "not a parquet file"),
]

RETRIEVAL: dict[str, tuple[dict[str, bytes | str], str]] = {
    "no corpus": ({"queries.jsonl": '{"_id": "q", "text": "a"}\n'}, "corpus.jsonl: add this file"),
    "no queries": ({"corpus.jsonl": '{"_id": "d", "text": "a"}\n'}, "queries.jsonl: add this file"),
    "no judgements": ({"qrels.tsv": ""}, "is empty"),
    "unknown query": ({"qrels.tsv": "x\td\t1\n"}, "add the query 'x' to queries.jsonl"),
    "unknown document": ({"qrels.tsv": "q\tx\t1\n"}, "add the document 'x' to corpus.jsonl"),
    "score of words": (
        {"qrels.tsv": "q\td\tgood\n"},
        "correct the score 'good', or remove the line",
    ),
    "score that is NaN": ({"qrels.tsv": "q\td\tnan\n"}, "must be a finite number"),
    "two fields": ({"qrels.tsv": "q\td\n"}, "give 3 tab-separated fields"),
    "two scores": ({"qrels.tsv": "q\td\t1\nq\td\t2\n"}, "which have the scores 1 and 2"),
    "nothing relevant": ({"qrels.tsv": "q\td\t0\n"}, "the query has no relevant document"),
    "an id twice": ({"corpus.jsonl": '{"_id": "d", "text": "a"}\n' * 2}, "an earlier text has 'd'"),
    "no id": ({"corpus.jsonl": '{"text": "a"}\n'}, "no column '_id'"),
    "no text": ({"queries.jsonl": '{"_id": "q"}\n'}, "no column 'text'"),
    "empty query": ({"queries.jsonl": '{"_id": "q", "text": " "}\n'}, "which has no text"),
    "text of numbers": ({"corpus.jsonl": '{"_id": "d", "text": 5}\n'}, "not text"),
    "title of lists": ({"corpus.jsonl": '{"_id": "d", "text": "a", "title": []}\n'}, "not text"),
    "broken JSON": ({"corpus.jsonl": '{"_id": "d"\n'}, "this line is not JSON"),
    "lines that are lists": ({"corpus.jsonl": "[1]\n"}, "no column '_id'"),
    "binary": ({"corpus.jsonl": b"\0\0"}, "NUL bytes"),
}

# label<TAB>text, or a table
LABELLED: list[tuple[str, bytes | str, str]] = [
    ("fields.tsv", "good\n", "the file is read as texts"),
    ("three.tsv", "a\tb\tc\n", "the file is read as pairs"),
    ("label.tsv", "\ttext\nx\ty\n", "the file is read as texts"),
    ("text.tsv", "a\t \nb\tc\n", "1 row with an empty text"),
    ("classes.tsv", "a\tone\na\ttwo\n", "at least 2 different labels; these 2 texts have 1"),
    ("few.tsv", "a\tone\nb\ttwo\n", "give at least two texts of each label"),
    ("columns.csv", "a,b\n1,2\n", "no column has a usual name"),
    ("kind.xlsx", b"PK\3\4", "unknown kind of file '.xlsx'"),
    ("list.jsonl", '{"label": [1], "text": "a"}\n', "not text"),
    ("empty.tsv", "", "is empty"),
    ("nul.tsv", b"a\0\tb\n", "NUL bytes"),
]


def _transfer(room: Path) -> Path:
    for name in ("mr", "cr", "subj", "mpqa"):
        content(room / f"transfer/{name}/all.tsv", "0\tbad\n1\tgood\n")
    for name in ("sst2", "trec", "mrpc"):
        for split in ("train", "dev", "test"):
            content(room / f"transfer/{name}/{split}.tsv", "0\tbad\n1\tgood\n")
    return room / "transfer"


def _files() -> Iterator[Case]:
    for name, data, says in STS:

        def evaluated(
            room: Path, bench: Bench, name: str = name, data: bytes | str = data
        ) -> Sequence[object]:
            return ["evaluate", bench.text, "--sts", content(room / name, data)]

        def watched(
            room: Path, bench: Bench, name: str = name, data: bytes | str = data
        ) -> Sequence[object]:
            return [*train(bench, bench.sentences), "--dev", content(room / name, data)]

        yield Case(f"sts/{name}", evaluated, says)
        if name in ("label.tsv", "empty.tsv", "bytes.tsv", "columns.csv", "broken.parquet"):
            yield Case(f"dev/{name}", watched)
    for name, data, says in LABELLED:

        def labelled(
            room: Path, bench: Bench, name: str = name, data: bytes | str = data
        ) -> Sequence[object]:
            return ["evaluate", bench.text, "--knn", "--labels", content(room / name, data)]

        yield Case(f"labels/{name}", labelled, says)


def _retrieval() -> Iterator[Case]:
    good: dict[str, bytes | str] = {
        "corpus.jsonl": '{"_id": "d", "text": "a"}\n',
        "queries.jsonl": '{"_id": "q", "text": "a"}\n',
        "qrels.tsv": "q\td\t1\n",
    }
    for name, (bad, says) in RETRIEVAL.items():

        def made(
            room: Path, bench: Bench, name: str = name, bad: dict[str, bytes | str] = bad
        ) -> Sequence[object]:
            files = bad if name in ("no corpus", "no queries") else {**good, **bad}
            for file, data in files.items():
                content(room / "set" / file, data)
            return ["evaluate", bench.text, "--retrieval", "set"]

        yield Case(f"retrieval/{name}", made, says)

    def watched(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "set/corpus.jsonl", "{}\n")
        return [*train(bench, bench.sentences), "--dev", "set"]

    def texts(room: Path, bench: Bench) -> Sequence[object]:
        return ["evaluate", bench.text, "--retrieval", bench.sentences]

    def piped(room: Path, bench: Bench) -> Sequence[object]:
        (room / "set").mkdir()
        os.mkfifo(room / "set/corpus.jsonl")
        return ["evaluate", bench.text, "--retrieval", "set"]

    yield Case("dev/a retrieval folder without texts", watched)
    yield Case("retrieval/single texts", texts, "give pairs of a query and a document")
    yield Case("retrieval/a pipe", piped, "queries.jsonl")


def _folders() -> Iterator[Case]:
    def sts(*made: str) -> "list[tuple[str, str]]":
        return [(name, "1\ta\tb\n2\tc\td\n") for name in made]

    folders: dict[str, tuple[str, list[tuple[str, bytes | str]], str]] = {
        "sts/no task": ("--sts", [("readme.txt", "hello")], "holds none of the STS tasks"),
        "sts/one task": ("--sts", [*sts("sts12/MSRpar.tsv")], "add the tasks STS13"),
        "sts/cut short": (
            "--sts",
            [
                *sts(*(f"sts1{i}/x.tsv" for i in range(3, 7)), "stsb/test.tsv", "sickr/test.tsv"),
                *sts("sts12/MSRpar.tsv"),
            ],
            "2 scored pairs, but the subset MSRpar of STS12 has 750",
        ),
        "sts/SentEval without SICK": (
            "--sts",
            [*sts("STS/STSBenchmark/sts-test.csv")],
            "add the tasks STS12",
        ),
        "transfer/nothing": ("--transfer", [("readme.txt", "hello")], "MR, CR"),
        "labels/no train": ("--labels", [("test.tsv", "a\tb\n")], "train"),
        "labels/two trains": (
            "--labels",
            [("train.tsv", "a\tb\n"), ("train.csv", "label,text\n"), ("test.tsv", "a\tb\n")],
            "found: train.tsv",
        ),
    }
    for name, (flag, files, says) in folders.items():

        def made(
            room: Path,
            bench: Bench,
            flag: str = flag,
            files: "list[tuple[str, bytes | str]]" = files,
        ) -> Sequence[object]:
            for file, data in files:
                content(room / "data" / file, data)
            return ["evaluate", bench.text, flag, "data"]

        yield Case(name, made, says)
    wrong: dict[str, tuple[str, bytes | str, str]] = {
        "too few rows": (
            "mr/all.tsv",
            "0\tbad\n1\tgood\n",
            "rows: 1 of label 0",
        ),
        "an unknown label": (
            "mr/all.tsv",
            "9\tbad\n",
            "give one of the labels 0, 1; MR has no label '9'",
        ),
        "three fields": ("mr/all.tsv", "0\tbad\tworse\n", "give 2 tab-separated fields"),
        "no bytes": ("mr/all.tsv", b"", "is empty"),
        "no UTF-8": ("mr/all.tsv", b"0\t\xff\n", "invalid UTF-8"),
        "an empty text": (
            "mr/all.tsv",
            "0\t \n",
            "download this file again",
        ),
    }
    for name, (file, data, says) in wrong.items():

        def spoilt(
            room: Path, bench: Bench, file: str = file, data: bytes | str = data
        ) -> Sequence[object]:
            content(_transfer(room) / file, data)
            return ["evaluate", bench.text, "--transfer", "transfer"]

        yield Case(f"transfer/{name}", spoilt, says)


def cases() -> Iterator[Case]:
    """Yield them."""
    yield from _files()
    yield from _retrieval()
    yield from _folders()
    for flag in ("--sts", "--transfer", "--retrieval", "--labels"):
        for what, name in (("nothing", "nowhere"), ("a device", "/dev/zero"), ("a pipe", "pipe")):

            def made(
                room: Path, bench: Bench, flag: str = flag, name: str = name
            ) -> Sequence[object]:
                if name == "pipe":
                    os.mkfifo(room / "pipe")
                return ["evaluate", bench.text, flag, name, *(["--knn"] * (flag == "--labels"))]

            yield Case(f"{flag[2:]}/{what} at all", made)
