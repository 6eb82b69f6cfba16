"""Recognises what the rows of a table are, for example pairs of texts, or labelled texts.

The names of the columns decide. Without names, numbers are scores, or labels beside one column of
texts. Whole numbers that all differ are ids, or answers if they follow a text in no order.

| rows | columns |
|---|---|
| pairs, with or without negatives | ``anchor, positive, negative, negative_1 ...`` |
| pairs written by FlagEmbedding | ``query, pos, neg`` (lists), ``pos_scores, neg_scores`` |
| pairs written by Tevatron | ``query, positive_passages, negative_passages`` |
| pairs written by ms-swift | ``messages, positive_messages, negative_messages`` |
| pairs with other usual names | ``question, answer``; ``query, passage`` ...: :data:`PAIRS` |
| scored pairs | ``sentence1, sentence2, score`` |
| labelled texts | ``text, label`` |
| single texts | ``text`` or ``sentence``, or the only column |

``NAME=COLUMN`` in ``--columns`` reads a column as if the header called it NAME.

A row with several positives becomes one record for each positive. A labelled text is paired with
another text of the same label, and the label becomes the group of the pair. Rows without a text are
skipped. ``str(reading)`` of a :class:`Reading` tells what was read and how many rows were skipped.

Text is UTF-8. White space at the ends is removed; no other character is changed or normalised. A
text without visible characters, for example only zero-width spaces, counts as empty.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from pathlib import Path

from isotrope.core.errors import InputError, place, unknown
from isotrope.core.legible import counted, shortened
from isotrope.data.lines import visible
from isotrope.data.records import Record, pairs_by_label
from isotrope.data.rows import Table, are_answers, are_ids, cell_scores, cell_texts, mark, number
from isotrope.data.table import SUFFIXES, open_table, plain_suffix

_OTHERS = (
    *("query positive", "question positive", "query passage", "query document", "query answer"),
    *("question answer", "question context", "sentence1 sentence2", "sentence_a sentence_b"),
    *("sentence_0 sentence_1", "text1 text2", "question1 question2", "premise hypothesis"),
)
PAIRS = (
    ("anchor", "positive", "negative"),
    ("query", "pos", "neg"),
    ("query", "positive_passages", "negative_passages"),
    ("messages", "positive_messages", "negative_messages"),
    ("query", "pos_doc", "neg_doc"),
    ("question", "positive_ctxs", "hard_negative_ctxs"),
    ("query", "response", "rejected_response"),
    *((*names.split(), "negative") for names in _OTHERS),
)
"""Column names of anchor, positive and negatives (also ``negative_1``). The first match decides."""

TEXT = ("text", "sentence")
"""Column names of single texts. The first match decides."""

# names of columns of scores; those of _JUDGED may be classes, so that their cells decide
_SCORE = ("score", "similarity_score", "relatedness_score", "similarity", "label", "is_duplicate")
_JUDGED = ("labels", "scores", "gold_label", "relevance", "relevance_label", "target", "duplicate")
_LABEL = ("label", "labels", "label_text")
_AS_GROUPS = " (add `--groups label` to a training that should not push equal labels apart)"
_NEGATIVE = r"(hard_?)?neg(ative)?(_passage|_document|_doc|_answer|_text)?"
_NEGATIVES = re.compile(rf"{_NEGATIVE}(s|_?\d+|_scores)?|pos_scores")
EMPTY = "an empty text"
"""A reason for skipping a row."""
NAMES = (*dict.fromkeys([*TEXT, *_LABEL, *chain(*PAIRS), *_SCORE, *_JUDGED]),)
"""Names of columns that decide how a table is read."""
HEADER = frozenset(
    {*NAMES}
    | {"id", "idx", "index", "title", "body", "category", "class", "review", "hard_negative"}
    | {"sentiment", "topic", "group", "query_id", "neg_scores", "pos_scores", "negative_passage"}
    | {f"negative_{i}" for i in range(64)}
)
"""Known column names. A first line with only such names is a header."""


@dataclass(frozen=True)
class Form:
    """The columns of a table that are read, and what they hold.

    Attributes:
        kind: Kind of rows: ``texts``, ``pairs``, ``scored pairs`` or ``labelled texts``.
        texts: Columns of texts: (text,), or (anchor, positive, negatives ...).
        scores: Columns of scores; an empty tuple if there are none.
        group: Column of groups or labels; an empty text if there is none.
        id: Column of ids; an empty text if there is none or ids are not read.
        names: Names by which the other columns were recognised; empty if they were not by name.
    """

    kind: str
    texts: tuple[str, ...]
    scores: tuple[str, ...] = ()
    group: str = ""
    id: str = ""
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of texts, scores, group and id, in this order."""
        return (*self.texts, *self.scores, *filter(None, (self.group, self.id)))


def form_of(table: Table, columns: Sequence[str], groups: str | None, choose: int) -> Form:
    """Return the :class:`Form` of a table from ``columns``; if none are given, from all columns.

    An error message proposes at most ``choose`` columns for ``--columns``.
    """
    group = groups or ""
    names, columns = _chosen(table, columns, group)
    if columns and not names:
        return Form("texts" if len(columns) == 1 else "pairs", tuple(columns), group=group)
    if not columns and not table.titled:
        return _untitled(table)
    own, named = dict(zip(names, columns, strict=False)), table
    if names:
        more = [group] if group and own.get(group) != group else []
        named = Table(
            table.place,
            (*names, *more),
            lambda them: table.cells([own.get(name, name) for name in them]),
        )
    if (form := _by_name(named, group)) is None:
        raise InputError(
            f"{place(table.place)}: {table.proposal(choose)}; no column has a usual name, such as "
            f"text or anchor (columns: {', '.join(map(repr, named.columns))[:200] or 'none'})"
        )
    texts, scores = ([own.get(name, name) for name in part] for part in (form.texts, form.scores))
    label = own.get(form.group, form.group)
    return Form(form.kind, (*texts,), (*scores,), label, names=form.columns)


def _by_name(table: Table, group: str) -> Form | None:
    """Return the form of a table by the names of its columns; None if they are not usual."""
    if twice := [name for name, count in Counter(table.columns).items() if count > 1]:
        raise InputError(f"{place(table.place)}: rename a column; two are called {twice[0]!r}")
    names = {name.lower(): name for name in reversed(table.columns) if name != group}
    if (form := _pairs(table, names)) is not None:
        return replace(form, group=group)
    if texts := [names[name] for name in TEXT if name in names]:
        label = next((names[name] for name in _LABEL if name in names), "")
        if label and not group:
            return Form("labelled texts", (texts[0],), group=label)
        return Form("texts", (texts[0],), group=group)
    return Form("texts", tuple(names.values()), group=group) if len(names) == 1 else None


def _chosen(table: Table, chosen: Sequence[str], group: str) -> tuple[list[str], list[str]]:
    """Return the new names of the chosen columns, if there are any, and the columns.

    Raises an error if the table does not have these columns, or if a new name has no meaning.
    """
    columns = table.chosen(chosen)
    names = [each if each in table.columns else each.partition("=")[0] for each in chosen]
    names = names if names != [*chosen] else []
    for name in names:
        low = name.lower()
        if not {low, low.removesuffix("s")} & {*NAMES} and not _NEGATIVES.fullmatch(low):
            raise InputError(
                unknown(f"{place(table.place)}: write NAME=COLUMN; unknown NAME", name, NAMES)
            )
    if checked := [*columns, *([group] if group else [])]:
        if not table.titled and not {*checked} <= {*filter(str.isdigit, table.columns)}:
            flag = f"`--columns {','.join(chosen)}`" if columns else f"`--groups {group}`"
            raise InputError(
                f"{place(table.place)}: choose columns by number (`--columns 1`), or add a header "
                f"with names; the columns have no names, so {flag} matches none of them"
            )
        table.rows(checked)
    return names, columns


def _pairs(table: Table, names: Mapping[str, str]) -> Form | None:
    """Return the form of a table with columns of :data:`PAIRS`; ``names`` has lower-case keys."""
    for first, second, negative in PAIRS:
        second = second if second in names else f"{second}s"
        if first not in names or second not in names:
            continue
        numbered = re.compile(rf"({negative}|{_NEGATIVE})(s|_?\d+)?")
        negatives = [name for low, name in names.items() if numbered.fullmatch(low)][::-1]
        texts = (names[first], names[second], *negatives)
        if second == "pos" and {"pos_scores", "neg_scores"} <= names.keys():
            return Form("pairs", texts, (names["pos_scores"], names["neg_scores"]))
        if negatives:
            scores = [names[name] for name in ("scores", "score") if name in names]
            return Form("pairs", texts, tuple(scores[:1]))
        judging = (names[name] for name in _JUDGED if name in names)
        usual = next((names[name] for name in _SCORE if name in names), "")
        if scored := usual or next(filter(table.judges, judging), ""):
            cells = table.values(scored)
            judges = {*map(number, cells)} == {0, 1} or isinstance([*cells, 0][0], list)
            # a column ``pos`` or ``positive`` has positives by its name; others may have scores
            if judges or not second.startswith("pos") or first == "messages":
                return Form("scored pairs", texts, (scored,))
        return Form("pairs", texts)
    return None


def _untitled(table: Table) -> Form:
    """Return the form of columns without names; a column of mostly numbers has no texts."""
    if len(table.columns) == 1:
        return Form("texts", table.columns)
    numbers = {name: own for name in table.columns if (own := table.numbers(name))}
    texts = tuple(name for name in table.columns if name not in numbers)
    scores = tuple(name for name, own in numbers.items() if not are_ids(own))
    if len(texts) == 2 and scores:
        return Form("scored pairs", texts, scores[-1:])
    if len(texts) > 1:
        return Form("pairs", texts, scores)
    own = [*chain(*numbers.values())]
    spelt = len(table.columns) == 2 and all(isinstance(value, str) for value in own)
    second = table.columns[1:2] != () and table.columns[1] in numbers
    if not texts or (spelt and (not table.how or (second and are_answers(own)))):
        return Form("pairs", table.columns)
    label = scores[0] if len(scores) == 1 else ""
    return Form("labelled texts" if label else "texts", texts, group=label)


@dataclass
class Reading:
    """The records of one or more sources, in order. Each iteration reads all sources again.

    Attributes:
        sources: Files, names of data sets on the hub, or tables.
        columns: Chosen columns of text; if empty, the columns are recognised by their names.
        groups: Chosen column of groups; None if no column was chosen.
        streaming: Whether to read data sets of the Hugging Face hub without keeping a copy.
        paired: Whether labelled texts become pairs. If False, each labelled text is one record.
        scored: Whether to read scored pairs, whose texts may not belong together, or refuse them.
        tabs: Whether tabs separate columns in a .txt file. If False, each line is a single text.
        choose: Largest number of columns that an error message proposes for ``--columns``. With 0,
            it does not propose this flag.
        ids: Whether to read the column ``_id`` or ``id`` of a table that has one.
        rows: Number of rows read.
        records: Number of records made from these rows.
        negatives: Dict from a number of negatives to the number of records with so many negatives.
        left: Dict from a reason for skipping rows to the number of rows skipped.
        other_files: Files in the given folders that were not read, because of endings or splits.
        holds_out: Function of a text; True if it is held out, and thus paired only with such texts.
        forms: Dict from each form of the tables read so far to the first table of this form.
    """

    sources: Sequence[Path | Table]
    columns: Sequence[str] = ()
    groups: str | None = None
    streaming: bool = False
    paired: bool = True
    scored: bool = False
    choose: int = 2
    tabs: bool = False
    ids: bool = False
    rows: int = 0
    records: int = 0
    negatives: Counter[int] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    other_files: Sequence[Path] = ()
    holds_out: Callable[[str], bool] = lambda _: False
    forms: dict[Form, Table] = field(default_factory=dict)
    _first_left: dict[str, str] = field(default_factory=dict)
    _opening: Sequence[str] = ()

    def __iter__(self) -> Iterator[Record]:
        """Read all sources."""
        self.rows = self.records = 0
        for count in (self.negatives, self.left, self._first_left, self.forms):
            count.clear()
        first: tuple[str, Path] | None = None
        for source in self.sources:
            table = self._open(source)
            form = self._form(table)
            first = first or (form.kind, table.place)
            if form.kind != first[0]:
                raise InputError(
                    f"give only files with the same kind of records; {place(table.place)} holds "
                    f"{form.kind}, but {place(first[1])} holds {first[0]}"
                )
            self.forms.setdefault(form, table)
            before = self.records
            records = self._read(table, form)
            if form.kind == "labelled texts" and self.paired:
                records = pairs_by_label(records, self.holds_out, self.leave)
            for record in records:
                self.records += 1
                self.negatives[max(len(record.texts) - 2, 0)] += 1
                yield record
            if self.records == before:
                left = f" ({self.left_out})" if self.left else ""
                lacks = "text" if self.left.keys() <= {EMPTY} else "record"
                raise InputError(
                    f"{place(table.place)}: give at least one record; this table holds no "
                    f"{lacks}{left}"
                )

    def _open(self, source: Path | Table) -> Table:
        if isinstance(source, Table):
            return source
        wanted = [*self.columns, *([self.groups] if self.groups else [])]
        return open_table(
            source, wanted, header=HEADER, streaming=self.streaming, txt_columns=self.tabs
        )

    def _form(self, table: Table) -> Form:
        """Return the form of a table; raise an error if it has scores that must not be read."""
        form = form_of(table, self.columns, self.groups, self.choose)
        if self.ids and table.titled:
            form = replace(form, id=next((n for n in ("_id", "id") if n in table.columns), ""))
        used = [name.lower() for name in form.names or form.columns]
        classes = used == ["premise", "hypothesis", "label"] or "gold_label" in used
        if form.kind != "scored pairs" or (self.scored and not classes):
            return form
        remedy = "keep only pairs with a high score and remove the column of scores"
        if not any(" " in str(cell) for name in form.texts for cell in table.values(name)):
            remedy += ", or, if these are ids, give the folder with the queries and the corpus"
        if classes:  # label 0 is entailment: the lowest "score" is the nearest pair
            remedy = "keep only the rows labelled entailment and remove the label column"
        columns = f". If all pairs belong together, use `--columns {','.join(form.texts)}`"
        raise InputError(
            f"{place(table.place)}: {remedy}; the table holds scored pairs "
            f"({', '.join(form.columns)}), for `isotrope train --loss CoSENTLoss` or `isotrope "
            f"evaluate --sts`{columns if self.choose > 1 else ''}"
        )

    def _read(self, table: Table, form: Form) -> Iterator[Record]:
        """Yield the records of a table, and count its rows."""
        opens = True
        by_line = not table.titled and len(table.columns) == 1
        for line, cells in table.rows(form.columns):
            if not cells or (by_line and not visible(str(cells[0] or "").strip())):
                opens = True
                continue
            self.rows += 1
            if table.titled and all(isinstance(c, str) for c in cells) and cells == form.columns:
                self.leave("a repeated header", table.place, line)
                continue
            records = _records(cells, form, table.place, line)
            whole = [record for record in records if all(record.texts[:2])]
            if form.kind == "labelled texts" and not records[0].group:
                self.leave("no label", table.place, line)
                continue
            if not whole:
                self.leave(EMPTY, table.place, line)
                opens = opens or len(form.texts) == 1
                continue
            self._opening = self._opening or whole[0].texts
            for record in whole:
                yield record._replace(opens=opens)
                opens = False

    def leave(self, reason: str, path: Path, line: int) -> None:
        """Count a skipped row, by the reason for skipping it."""
        self.left[reason] += 1
        alone = len(self.sources) == 1
        self._first_left.setdefault(reason, place("" if alone else path, line))

    @property
    def kind(self) -> str:
        """Kind of the records: one of the values of :attr:`Form.kind`."""
        return next((form.kind for form in self.forms), "")

    @property
    def left_out(self) -> str:
        """Reasons for skipping rows as a text, each with the number of rows and the first row."""
        return ", ".join(
            f"{counted(count, 'row')} with {reason} ("
            f"{'the first is ' if count > 1 else ''}{self._first_left[reason]})"
            for reason, count in self.left.items()
        )

    @property
    def names(self) -> list[str]:
        """List of the columns of texts and groups that were read, by name or number."""
        read = (c for each in self.forms for c in (*each.texts, *filter(None, [each.group])))
        return list(dict.fromkeys(read))

    @property
    def not_read(self) -> list[str]:
        """List of phrases on columns, rows and files that were not read; may be empty."""
        form, table = next(iter(self.forms.items()))
        parts = []
        unread = [name for name in table.columns if name not in form.columns]
        if unread and not self.columns:
            hints = {"label": _AS_GROUPS} if not form.group else {}
            parts.append(f"not read: {', '.join(name + hints.get(name, '') for name in unread)}")
        if self.left:
            parts.append(f"left out: {self.left_out}")
        chosen = {part for c in self.columns for part in (c.lower(), c.lower().partition("=")[2])}
        names, usual = {*map(str.lower, table.columns)}, HEADER | chosen
        if table.titled and table.how and names.isdisjoint(usual):
            parts.append("the first line is the header; if it is a record, put a header above it")
        if form.kind == "texts" and not table.titled and "\t" in self._opening[0]:
            parts.append("tabs are characters of a text; if they separate columns, name it .tsv")
        if self.other_files:
            parts.append(f"files not read: {_listed(self.other_files)}")
        return parts

    def __str__(self) -> str:
        """Return one line on what was read, and as what."""
        form, table = next(iter(self.forms.items()))
        files = len({*map(str, self.sources)})
        whose = table.place.name or str(table.place)
        kind = {"texts": "single texts"}.get(form.kind, form.kind)
        if widths := [n for n in self.negatives if n]:
            least, most = min(self.negatives), max(widths)
            count = f"{most}" if least == most else f"{least} to {most}"
            kind = f"pairs with {count} negative{'s' if count != '1' else ''} each"
        spelt = {c: f"{n}={c}" for c, n in zip(form.columns, form.names, strict=False) if c != n}
        names, scores = ([spelt.get(c, c) for c in part] for part in (self.names, form.scores))
        if table.titled or spelt:
            how = f", columns {', '.join(names)}{f' ({table.how})' if table.how else ''}"
        else:
            opening = " | ".join(shortened(text, 40) for text in self._opening)
            how = f", {table.how or 'no header'}, first record {opening}"
        parts = [
            f"read {whose}{f' and {files - 1} more' if files > 1 else ''}: {self.records:,} {kind}",
            f" from {self.rows:,} rows" if self.rows != self.records else "",
            how,
            f", scores {', '.join(scores)}" if scores else "",
        ]
        return "; ".join(["".join(parts), *self.not_read])


def _listed(files: Sequence[Path]) -> str:
    """Return the names of readable files, and the counts of the other endings."""
    known = sorted(path.name for path in files if plain_suffix(path) in SUFFIXES)
    others = [path.suffix or path.name for path in files if plain_suffix(path) not in SUFFIXES]
    ends = [f"{count} {end}" for end, count in Counter(others).most_common(4)]
    return ", ".join([*known[:4], *ends, *["..."] * bool(known[4:])])


def _records(cells: Sequence[object], form: Form, path: Path, line: int) -> list[Record]:
    """Return the records of a row, one for each positive; anchor and positive may be empty."""
    cell = dict(zip(form.columns, cells, strict=True))
    texts = [[visible(t) for t in cell_texts(cell[c], path, line, c)] for c in form.texts]
    scores = cell_scores([cell[column] for column in form.scores], path, line, form.scores)
    group = mark(cell[form.group], path, line, form.group) if form.group else ""
    own_id = mark(cell[form.id], path, line, form.id) if form.id else ""
    if len(texts[0]) > 1:
        raise InputError(
            f"{place(path, line)}: give one text as the anchor; column {form.texts[0]!r} holds "
            f"{len(texts[0])} texts"
        )
    anchor = "".join(texts[0])
    record = Record((anchor,), path, line, opens=False, group=group, id=own_id)
    if len(texts) == 1:
        return [record]
    others = [*chain(*texts[2:])]
    negatives = [text for text in others if text]
    return [
        record._replace(
            texts=(anchor, positive, *negatives), scores=_own_scores(scores, i, others, form)
        )
        for i, positive in enumerate(texts[1])
    ]


def _own_scores(
    scores: Sequence[list[float]], positive: int, negatives: Sequence[str], form: Form
) -> tuple[float, ...]:
    """Return the scores of one positive of a row, and of the negatives that are not empty."""
    if not scores:
        return ()
    own, *others = scores
    if len(scores) > 1 or (form.kind == "scored pairs" and len(own) > 1):
        own = own[positive : positive + 1]
    every = (*own, *chain(*others)) if own else ()
    has_each = len(every) == 1 + len(negatives)  # a score for each text after the anchor
    return tuple(compress(every, (True, *negatives))) if has_each else every
