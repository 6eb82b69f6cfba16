"""Retrieval sets: a folder in the BEIR layout, pairs, and judgements that lead nowhere."""

import gzip
import json
from pathlib import Path

import pytest

from isotrope.core.errors import InputError
from isotrope.data.text import retrieval_sets
from isotrope.data.text.retrieval_sets import from_pairs, load_retrieval


def jsonl(path: Path, *rows: dict[str, object]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    jsonl(
        tmp_path / "corpus.jsonl",
        {"_id": "d1", "title": "Bread", "text": "needs yeast"},
        {"_id": "d2", "text": "boils at 100 degrees", "metadata": {}},
        {"_id": 3, "title": "", "text": "orbits the sun"},
    )
    jsonl(
        tmp_path / "queries.jsonl",
        {"_id": "q1", "text": "how does dough rise"},
        {"_id": "q2", "text": "what is hot"},
    )
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq2\td2\t2\nq2\t3\t1\nq2\td1\t0\nq2\tgone\t0\n"
    )
    return tmp_path


def test_a_folder(folder: Path) -> None:
    found = load_retrieval(folder)
    assert found.queries == ["what is hot"]
    assert found.corpus == ["Bread needs yeast", "boils at 100 degrees", "orbits the sun"]
    assert found.relevant == [{1: 2.0, 2: 1.0}]
    assert found.left_out == 1


@pytest.mark.parametrize("header", ["", "id\ttext\n", "_id\ttext\n"])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_folder_of_tables_of_ids_and_texts(tmp_path: Path, end: str, header: str) -> None:
    files = {
        "corpus.tsv": f"{header}d1\tneeds yeast\nd2\tboils at 100 degrees\n",
        "queries.tsv": f"{header}q1\thow does dough rise\nq2\twhat is hot\n",
        "qrels.tsv": "q1\td1\t1\nq2\td2\t1\n",
    }
    for name, text in files.items():
        write = gzip.compress if end else bytes
        (tmp_path / f"{name}{end}").write_bytes(write(text.encode()))
    found = load_retrieval(tmp_path)
    assert found.queries == ["how does dough rise", "what is hot"]
    assert found.corpus == ["needs yeast", "boils at 100 degrees"]
    assert found.relevant == [{0: 1.0}, {1: 1.0}]
    assert found.ids == (["q1", "q2"], ["d1", "d2"])
    if not end:
        (tmp_path / "corpus.tsv").write_text("d1 \tneeds yeast\nd2\tboils at 100 degrees\n")
        assert load_retrieval(tmp_path).ids == found.ids  # spaces around an id do not count
        (tmp_path / "qrels.tsv").write_text("q9\td1\t1\n")
        with pytest.raises(InputError, match=r"add the query 'q9' to queries\.tsv, or"):
            load_retrieval(tmp_path)
        (tmp_path / "corpus.tsv").write_text("d1 needs yeast\n")
        with pytest.raises(InputError, match="id<TAB>text"):
            load_retrieval(tmp_path)


def test_a_document_with_the_id_of_a_query_is_that_query(folder: Path) -> None:
    rows = [{"_id": name, "text": f"argument {name}"} for name in ("a", "b", "c")]
    jsonl(folder / "corpus.jsonl", *rows)
    jsonl(folder / "queries.jsonl", *reversed(rows), {"_id": "d", "text": "no document"})
    (folder / "qrels" / "test.tsv").write_text("a\tb\t1\nc\tc\t1\nd\ta\t1\n")
    found = load_retrieval(folder)
    assert found.queries == ["argument c", "argument a", "no document"]
    assert found.itself == {1: 0}  # c is judged an answer to itself


def test_qrels_tsv_must_cover_all_queries(folder: Path) -> None:
    (folder / "qrels.tsv").write_text("q2\td2\t1\nq1\td1\t1\n")
    assert load_retrieval(folder).relevant == [{0: 1.0}, {1: 1.0}]
    (folder / "qrels.tsv").write_text("q2\td2\t1\nq1\td1\t0\n")
    with pytest.raises(InputError, match=r"qrels.tsv: give the query 'q1' a document"):
        load_retrieval(folder)


def test_gzip(folder: Path) -> None:
    jsonl(folder / "corpus.jsonl.gz", {"_id": "d1", "text": "x"})
    (folder / "corpus.jsonl").unlink()
    (folder / "qrels" / "test.tsv").write_text("q1\td1\t1\n")
    assert load_retrieval(folder).queries == ["how does dough rise"]


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        ("q9\td1\t1\n", "line 1: add the query 'q9' to queries.jsonl, or remove"),
        ("q1\td1\t1\n\nq1\td9\t1\n", "line 3: add the document 'd9' to corpus.jsonl, or remove"),
        ("q1\td1\n", "line 1: give 3 tab-separated fields, query-id<TAB>"),
        ("q1\td1\thigh\n", "line 1: correct the score 'high', or remove the line"),
        ("q1\td1\tnan\n", "line 1: correct the score 'nan', or remove the line"),
        (
            "q1\td1\t1\nq1\td1\t1\nq1\td1\t0\n",
            "query 'q1' and document 'd1', which have the scores 1 and 0",
        ),
        ("q1\td1\t0\n", "give the query 'q1' a document with a score above 0"),
        ("", "is empty"),
    ],
)
def test_judgements_that_lead_nowhere(folder: Path, qrels: str, message: str) -> None:
    path = folder / "qrels" / "test.tsv"
    path.write_text(qrels)
    with pytest.raises(InputError, match=message) as caught:
        load_retrieval(folder)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("corpus", [{"_id": "d1"}], "the table has no column 'text'; its columns: '_id'"),
        ("corpus", [{"text": "a"}], "the table has no column '_id'; its columns: 'text'"),
        (
            "corpus",
            [{"_id": "a", "text": 3}],
            "line 1: choose a column of text; column 'text' holds 3 .int., not text",
        ),
        (
            "corpus",
            [{"_id": "a", "text": "b"}, {"_id": "a", "text": "c"}],
            "line 2: give each text its own _id; an earlier text has 'a'",
        ),
        ("corpus", [{"_id": "a", "text": "b", "title": 5}], "column 'title' holds 5 .int., not"),
        ("queries", [{"_id": "q1", "text": " "}], "remove the query 'q1'"),
        ("queries", [{}], "the table has no column '_id'; its columns: none"),
        (
            "queries",
            [{"text": "a"}, {"_id": "b", "text": "c"}],
            "line 1: give each text its own _id",
        ),
    ],
)
def test_texts_that_cannot_be_used(folder: Path, name: str, rows, message: str) -> None:
    jsonl(folder / f"{name}.jsonl", *rows)
    with pytest.raises(InputError, match=message):
        load_retrieval(folder)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_missing_files(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match="leave corpus out"):
        load_retrieval(folder, corpus=folder / "corpus.jsonl")
    (folder / name).unlink()
    with pytest.raises(
        InputError, match=f"{name}: add this file; a folder of a retrieval task needs"
    ):
        load_retrieval(folder)


def test_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("q\td1\tx\nq\td2\td1\nr\td1\ty\n")
    found = load_retrieval(path)
    assert found.queries == ["q", "r"]
    assert found.corpus == ["d1", "x", "d2", "y"]
    assert found.relevant == [{0: 1.0, 2: 1.0}, {0: 1.0}]
    assert from_pairs([("q", "d1", "x"), ("q", "d2", "d1"), ("r", "d1", "y")]) == found


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("more.txt", "d1\nd3\n", ()),
        ("more.tsv", "x\td1\nd1\td3\n", ()),
        ("more.csv", "frage,nr,antwort\nx,1,d1\nd1,2,d3\n", ("frage", "antwort")),
        ("more.csv", "antwort\nd1\nd3\n", ("frage", "antwort")),
        ("more.tsv", "antwort\tfrage\nd1\tx\nd3\ty\n", ("frage", "antwort")),
        ("more.txt", "d1\nd3\n", ("frage", "antwort")),
    ],
)
def test_more_documents(tmp_path: Path, name: str, text: str, columns: tuple[str, ...]) -> None:
    pairs, more = tmp_path / "pairs.tsv", tmp_path / name
    pairs.write_text(f"{chr(9).join(columns)}\n" * bool(columns) + "q\td1\nd3\td2\n")
    more.write_text(text)
    found = load_retrieval(pairs, columns, corpus=more)
    assert found.corpus == ["d1", "d2", "d3"]
    assert found.relevant == [{0: 1.0}, {1: 1.0}]
    assert found.itself == {1: 2}  # the query d3 is a document now
    assert [how.split(":")[0] for how in found.how] == ["read pairs.tsv", f"read {name}"]


@pytest.mark.parametrize("columns", [[], ["frage", "antwort"]])
def test_a_text_file_has_one_document_on_each_line(tmp_path: Path, columns: list[str]) -> None:
    pairs, more = tmp_path / "pairs.tsv", tmp_path / "more.txt"
    pairs.write_text("\t".join(columns) + "\nq\td\n")
    more.write_text("antwort\tfrage\nd1\td2\n")
    found = load_retrieval(pairs, columns, corpus=more)
    assert found.corpus == ["d", "antwort\tfrage", "d1\td2"]
    assert "name it .tsv" in found.how[1]


def test_pairs_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(InputError, match="give pairs of a query and a document"):
        load_retrieval(tmp_path / "a.txt")
    (tmp_path / "a.tsv").write_text("a\tb\nc\t\n")
    with pytest.raises(InputError, match=r"remove or complete 1 row .* \(line 2\)"):
        load_retrieval(tmp_path / "a.tsv")
    (tmp_path / "a.csv").write_text("frage,antwort\na,b\n")
    with pytest.raises(InputError, match=r"no column has a usual .*'frage', 'antwort'"):
        load_retrieval(tmp_path / "a.csv")
    with pytest.raises(InputError, match="no such file"):
        load_retrieval(tmp_path / "nothing")


LABELLED = "text,label\none,a\ntwo,b\nthree,a\nfour,c\nfive,a\ntwo,b\nsix,b\n"


class TestLabels:
    def test_the_right_answers_are_the_other_texts_of_the_label(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(LABELLED)
        found = load_retrieval(tmp_path / "a.csv")
        assert found.corpus == ["one", "two", "three", "four", "five", "six"]
        assert found.queries == ["one", "two", "three", "five", "six"]
        assert found.relevant == [{2: 1, 4: 1}, {5: 1}, {0: 1, 4: 1}, {0: 1, 2: 1}, {1: 1}]
        assert found.itself == {0: 0, 1: 1, 2: 2, 3: 4, 4: 5}
        assert found.left_out == 1  # four, the only text of its label
        assert found.labels == ([*"abaab"], [*"abacab"])
        assert "7 labelled texts" in found.how[0]
        assert found.highest_recall(1) == pytest.approx((0.5 * 3 + 2) / 5)

    def test_a_text_with_two_labels(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("text,label\none,a\ntwo,b\none,b\nthree,a\n")
        found = load_retrieval(tmp_path / "a.csv")
        assert found.relevant == [{1: 1, 2: 1}, {0: 1}, {0: 1}]

    def test_two_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("text,label\none,a\ntwo,b\nsix,z\n")
        (tmp_path / "b.tsv").write_text("label\ttext\nb\tlike two\na\tone\na\tlike one\n")
        found = load_retrieval(tmp_path / "a.csv", corpus=tmp_path / "b.tsv")
        assert found.corpus == ["like two", "one", "like one"]
        assert (found.queries, found.left_out) == (["one", "two"], 1)
        assert (found.relevant, found.itself) == ([{2: 1}, {0: 1}], {0: 1})

    def test_a_corpus_needs_labels_too(self, tmp_path: Path) -> None:
        """Its texts of the right label would count as wrong."""
        (tmp_path / "a.csv").write_text(LABELLED)
        (tmp_path / "more.txt").write_text("seven\none\n")
        with pytest.raises(InputError):
            load_retrieval(tmp_path / "a.csv", corpus=tmp_path / "more.txt")

    @pytest.mark.parametrize("columns", [["text", "label=intent"], ["text=1", "label=2"]])
    def test_a_corpus_may_have_names_of_its_own(self, tmp_path: Path, columns: list[str]) -> None:
        (tmp_path / "a.csv").write_text(LABELLED.replace("label", "intent", 1))
        (tmp_path / "b.csv").write_text(LABELLED)
        corpus = tmp_path / "b.csv"
        found = load_retrieval(tmp_path / "a.csv", columns, corpus=corpus)
        assert found.relevant == load_retrieval(corpus, corpus=corpus).relevant

    def test_texts_whose_labels_all_differ_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("text,label\none,a\ntwo,b\nthree,c\n")
        with pytest.raises(InputError):
            load_retrieval(tmp_path / "a.csv")

    def test_some_texts_are_queries_if_a_label_has_very_many(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(retrieval_sets, "_MOST", 100)
        rows = "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(20))
        (tmp_path / "a.csv").write_text(f"text,label\n{rows}")
        found = load_retrieval(tmp_path / "a.csv")
        assert (len(found.queries), len(found.corpus)) == (7, 20)
        assert all(len(row) == 9 for row in found.relevant)
        assert "7 of 20" in found.how[-1]
        # rows in turn are drawn by chance
        assert {int(query.split()[1]) % 2 for query in found.queries} == {0, 1}

    def test_two_near_copies_with_one_label_are_no_fault(self, tmp_path: Path) -> None:
        texts = ["One and the same text, no 1", "one and the same text, no 2", "Another", "More"]

        def copies(labels: str) -> int:
            rows = "".join(f'"{t}",{label}\n' for t, label in zip(texts, labels, strict=True))
            (tmp_path / "a.csv").write_text(f"text,label\n{rows}")
            return load_retrieval(tmp_path / "a.csv").near_copies.copies

        assert (copies("aabb"), copies("abab")) == (0, 2)


def test_a_query_is_no_answer_to_itself() -> None:
    both_ways = from_pairs([("a", "b"), ("b", "a"), ("c", "c"), ("d", "e")])
    assert both_ways.queries == ["a", "b", "c", "d"]
    assert both_ways.corpus == ["b", "a", "c", "e"]
    assert both_ways.itself == {0: 1, 1: 0}
