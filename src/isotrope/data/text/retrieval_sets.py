"""Reads queries and relevant documents: a folder in the BEIR layout, pairs, or labelled texts.

A folder (Thakur et al. 2021) holds ``corpus.jsonl`` (``_id``, ``text``, optional ``title``),
``queries.jsonl`` (``_id``, ``text``), and ``qrels.tsv`` or ``qrels/test.tsv``, whose lines are
query-id<TAB>corpus-id<TAB>score, with or without a header. The corpus and the queries can also be
``.tsv`` files with lines id<TAB>text. All files may end in ``.gz``. In a file of pairs, each anchor
is a query, and the positive is a relevant document. Negatives and a second file add documents. Each
labelled text is a query, and the other texts of its label are relevant.

A query can also be a document, with the same id in a folder (as in ArguAna) or the same text in a
file. This document is relevant for the query only if the qrels or a pair says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isotrope.core.errors import InputError, place
from isotrope.data.lines import fields, is_folder, quoted
from isotrope.data.records import Record
from isotrope.data.rows import cell_score, cell_text, source_of
from isotrope.data.schemas import HEADER, Reading
from isotrope.data.sources import read
from isotrope.data.table import open_table
from isotrope.data.text.copies import NearCopies, near_copies
from isotrope.data.text.repeats import groups_of

_MOST = 1_000_000  # right answers to labelled texts; with more, some texts are no queries


@dataclass(frozen=True)
class RetrievalSet:
    """A retrieval task.

    Attributes:
        queries: Texts of the queries.
        corpus: Texts of the documents. A title is put before its text.
        relevant: List of a dict for each query, with at least one item: the key is the position of
            a relevant document in ``corpus``, and the value is the document's score, above 0.
        left_out: Number of queries without a relevant document, which are not in ``queries``.
        itself: Dict from the position of a query to its position in ``corpus``, for queries that
            are documents, but not relevant for themselves. A search must skip this document.
        ids: Ids of the queries, and ids of the documents; two empty lists for a file of pairs.
        how: One line on what was read from each file; empty for a folder.
        labels: Labels of the queries, and of the documents; two empty lists without labels.
    """

    queries: list[str]
    corpus: list[str]
    relevant: list[dict[int, float]]
    left_out: int = 0
    itself: dict[int, int] = field(default_factory=dict)
    ids: tuple[list[str], list[str]] = field(default=([], []), compare=False)
    how: tuple[str, ...] = field(default=(), compare=False)
    labels: tuple[list[object], list[object]] = field(default=([], []), compare=False)

    @cached_property
    def near_copies(self) -> NearCopies:
        """Relevant documents with a near-copy that is not relevant to the same queries."""
        links = [[next(iter(row)), at] for row in self.relevant for at in row]
        asked = {at: self.relevant[i] for i, at in self.itself.items()}  # documents as queries
        links += [[own, at] for own, row in asked.items() for at in row if own in asked.get(at, ())]
        relevant = np.zeros(len(self.corpus), bool)
        relevant[links] = True
        groups = groups_of(np.array(links), len(self.corpus))
        return near_copies(self.corpus, groups=groups, examined=relevant)

    def highest_recall(self, k: int) -> float:
        """Return the recall@k of a perfect ranking: below 1 if queries have over k answers."""
        return float(np.mean([min(1.0, k / len(row)) for row in self.relevant]))


class _TextsById(NamedTuple):
    """The texts of a file, and the place of each id in them."""

    path: Path
    places: dict[str, int]
    texts: list[str]


def load_retrieval(
    path: Path | str, columns: Sequence[str] = (), *, corpus: Path | None = None, choose: int = 2
) -> RetrievalSet:
    """Load a retrieval task from a folder, or from a file of pairs or of labelled texts.

    Args:
        path: The folder or file.
        columns: Columns of queries, then of documents. If empty, usual names are recognised.
        corpus: File with more documents: single texts, or pairs whose anchors are ignored. If it
            has some of the document columns in ``columns``, only these are read. For labelled
            texts, this file has labels, too, and only its texts are ranked.
        choose: Largest number of columns that an error message proposes for ``--columns``.
    """
    path = Path(path)
    if is_folder(path):
        if columns:
            raise InputError(f"leave `--columns` out: {place(path)} is a folder, not a table")
        if corpus is not None:
            raise InputError(f"leave `--corpus` out; add its texts to the corpus in {place(path)}")
        return _load_folder(path)
    reading = read([path], columns=columns or None, paired=False, choose=choose)
    records, labelled = list(reading), reading.kind == "labelled texts"
    if reading.kind != "pairs" and not labelled:
        raise InputError(
            f"{place(path)}: give pairs of a query and a document, or texts with a column `label`; "
            f"this file holds {reading.kind}"
        )
    if reading.left:
        raise InputError(f"{place(path)}: remove or complete {reading.left_out}")
    if labelled:
        return _among_labelled(path, reading, records, corpus)
    others, how = list[str](), [str(reading)]
    if corpus is not None:
        others, more = _documents(corpus, reading.names[1:] if columns else ())
        how.append(str(more))
    return replace(from_pairs([record.texts for record in records], others), how=tuple(how))


def _documents(path: Path, columns: Sequence[str]) -> tuple[list[str], Reading]:
    """Return the texts of a file (the given columns, or all but anchors), and its reading."""
    own = [name for name in columns if name in open_table(path, [name], header=HEADER).columns]
    reading = read([path], columns=own or None, paired=False, scored=True)
    records = [record.texts if own else record.texts[1:] or record.texts for record in reading]
    return [text for texts in records for text in texts], reading


def _among_labelled(
    path: Path, reading: Reading, records: Sequence[Record], corpus: Path | None
) -> RetrievalSet:
    """Return a search for labelled texts among the others of their file, or among a corpus."""
    texts = [(record.texts[0], record.group) for record in records]
    others, how = texts, [str(reading)]
    if corpus is not None:
        chosen = reading.columns
        table = open_table(corpus, [], header=HEADER)
        if not {source_of(name, table.columns) for name in chosen} <= {*table.columns}:
            chosen = ()  # this file has names of its own
        more = read([corpus], columns=chosen or None, paired=False)
        others = [(record.texts[0], record.group) for record in more]
        how.append(str(more))
        if more.kind != "labelled texts":
            raise InputError(
                f"{place(corpus)}: give labelled texts, as in {place(path)}, with the same names "
                f"of columns; this file holds {more.kind}"
            )
    sizes = Counter(label for _, label in others)
    fewer = 1 + sum(sizes[label] for _, label in texts) // _MOST
    drawn = np.sort(np.random.default_rng(0).permutation(len(texts))[::fewer]).tolist()
    data = from_labels([texts[i] for i in drawn], others)
    if not data.queries:
        raise InputError(
            f"{place(path)}: give at least two texts of a label, or a `--corpus` with the same "
            "labels; no text has another text of its label"
        )
    queries = f"{len(data.queries):,} of {len(texts):,} texts are queries"
    how.append(f"{queries}; right texts have their label")
    return replace(data, how=tuple(how))


def from_labels(
    queries: Sequence[tuple[str, object]], documents: Sequence[tuple[str, object]]
) -> RetrievalSet:
    """Return a retrieval task from texts with labels. A query has the documents of its label.

    Equal texts become one, with all their labels. A document that is the query is not relevant.
    Queries without a relevant document are left out.
    """
    labels = dict(queries), dict(documents)  # of a text with several, the last
    corpus = {text: place for place, text in enumerate(labels[1])}
    members: dict[object, dict[int, float]] = {}
    for text, label in documents:
        members.setdefault(label, {})[corpus[text]] = 1.0
    found: dict[str, dict[int, float]] = {query: {} for query in labels[0]}
    for query, label in queries:
        found[query].update(members.get(label, {}))
        found[query].pop(corpus.get(query, -1), None)
    relevant = {query: row for query, row in found.items() if row}
    itself = {i: corpus[query] for i, query in enumerate(relevant) if query in corpus}
    shown = [labels[0][query] for query in relevant], [*labels[1].values()]
    task = [*relevant], [*corpus], [*relevant.values()]
    return RetrievalSet(*task, len(found) - len(relevant), itself, labels=shown)


def from_pairs(pairs: Iterable[tuple[str, ...]], others: Iterable[str] = ()) -> RetrievalSet:
    """Return a retrieval task. A record is a query, a relevant document, and other documents.

    The texts ``others`` are documents, too. Equal texts become one query or one document, so a
    query may have several relevant documents.
    """
    queries: dict[str, dict[int, float]] = {}
    corpus: dict[str, int] = {}
    for query, *documents in pairs:
        places = [corpus.setdefault(document, len(corpus)) for document in documents]
        queries.setdefault(query, {})[places[0]] = 1.0
    for document in others:
        corpus.setdefault(document, len(corpus))
    itself = {
        i: place
        for i, (query, relevant) in enumerate(queries.items())
        if (place := corpus.get(query)) is not None and place not in relevant
    }
    return RetrievalSet(list(queries), list(corpus), list(queries.values()), itself=itself)


def _load_folder(folder: Path) -> RetrievalSet:
    corpus_path, queries_path = (_present(folder, f"{n}.jsonl") for n in ("corpus", "queries"))
    corpus, queries = _read_texts(corpus_path), _read_texts(queries_path)
    for name, number in queries.places.items():
        if not queries.texts[number]:
            raise InputError(f"{place(queries_path)}: remove the query {name!r}, which has no text")
    one_qrels_file = any((folder / f"qrels.tsv{end}").exists() for end in ("", ".gz"))
    qrels_path = _present(folder, "qrels.tsv" if one_qrels_file else "qrels/test.tsv")
    relevant = _relevant(qrels_path, queries, corpus)
    judged = [i for i, documents in enumerate(relevant) if documents]
    if not judged or (one_qrels_file and len(judged) < len(relevant)):
        lacking = next(name for name, i in queries.places.items() if not relevant[i])
        raise InputError(
            f"{place(qrels_path)}: give the query {lacking!r} a document with a score above 0, or "
            "remove this query; the query has no relevant document"
        )
    ids = [list(queries.places)[i] for i in judged]
    same = {i: corpus.places[name] for i, name in enumerate(ids) if name in corpus.places}
    return RetrievalSet(
        [queries.texts[i] for i in judged],
        corpus.texts,
        [relevant[i] for i in judged],
        left_out=len(relevant) - len(judged),
        itself={i: document for i, document in same.items() if document not in relevant[judged[i]]},
        ids=(ids, list(corpus.places)),
    )


def _relevant(path: Path, queries: _TextsById, documents: _TextsById) -> list[dict[int, float]]:
    """Return the relevant documents of each query, from the file of judgements."""
    relevant: list[dict[int, float]] = [{} for _ in queries.places]
    for line, query, document, score in _judgements(path):
        for what, name, known in ("query", query, queries), ("document", document, documents):
            if score > 0 and name not in known.places:
                raise InputError(
                    f"{place(path, line)}: add the {what} {quoted(name)} to {known.path.name}, or "
                    f"remove this line; {known.path.name} does not have this {what}"
                )
        if score > 0:
            relevant[queries.places[query]][documents.places[document]] = score
    return relevant


def _present(folder: Path, name: str) -> Path:
    names = (name, name.replace(".jsonl", ".tsv"))
    for path in (folder / f"{each}{end}" for each in names for end in ("", ".gz")):
        if path.exists():
            return path
    raise InputError(
        f"{place(folder / name)}: add this file; a folder of a retrieval task needs corpus.jsonl, "
        "queries.jsonl, and qrels.tsv or qrels/test.tsv"
    )


_HEADERS = ["_id", "text"], ["id", "text"]  # of a table of ids and texts


def _read_texts(path: Path) -> _TextsById:
    """Read a file of JSON lines, or of lines id<TAB>text. A title is put before its text."""
    places: dict[str, int] = {}
    texts: list[str] = []
    records: Iterable[tuple[int, Sequence[Any]]] = fields(path, "id<TAB>text", blank=True)
    columns = ["text"]
    if ".jsonl" in path.suffixes:
        table = open_table(path)
        columns += ["title"] if "title" in table.columns else []
        records = table.rows(["_id", *columns])
    for line, cells in records:
        if not cells or (line == 1 and cells in _HEADERS):
            continue
        if cells[0] is None:
            raise InputError(f"{place(path, line)}: give each text its own _id; this text has none")
        name = str(cells[0]).strip()  # as in the judgements
        if name in places:
            raise InputError(
                f"{place(path, line)}: give each text its own _id; an earlier text has {name!r} too"
            )
        places[name] = len(texts)
        parts = [cell_text(cell, path, line, c) for cell, c in zip(cells[1:], columns, strict=True)]
        texts.append(" ".join(parts[::-1]).strip())  # the title first
    if not texts:
        raise InputError(
            f"{place(path)}: write an id and a text on each line; this file has no text"
        )
    return _TextsById(path, places, texts)


def _judgements(path: Path) -> Iterator[tuple[int, str, str, float]]:
    scores: dict[tuple[str, str], float] = {}
    for line, cells in fields(path, "query-id<TAB>corpus-id<TAB>score", blank=True):
        query, document, given = (cell.strip() for cell in cells)
        if line == 1 and given == "score":  # the header
            continue
        number = cell_score(given, path, line)
        before = scores.setdefault((query, document), number)
        if before != number:
            raise InputError(
                f"{place(path, line)}: keep one of the two lines for query {quoted(query)} and "
                f"document {quoted(document)}, which have the scores {before:g} and {number:g}"
            )
        yield line, query, document, number
