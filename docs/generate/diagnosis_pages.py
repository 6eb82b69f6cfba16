"""The pages on diagnosis: the tables of all verdicts and thresholds, and one page for each verdict.

Written by `make docs` from the verdicts and the benchmark of broken trainings. The sections "What
to do" and "When to ignore it", the words under "What decides", and the example of a verdict that
the benchmark lacks, are written by hand in docs/diagnoses/VERDICT.md, and stay as they are there.
"What to do" begins with the change of the verdict's record if this is a flag with a fixed value.
"""

import csv
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.generate.legend import legend
from isotrope.core.files import write_text
from isotrope.diagnostics.findings import HEALTHY
from isotrope.diagnostics.verdict import THRESHOLDS, Threshold, compared
from isotrope.diagnostics.verdicts import VERDICTS
from isotrope.diagnostics.verdicts.sources import NEWER, OURS, ZOO

_PAGE = """# Verdicts and thresholds

Use this page to look up a verdict. `isotrope diagnose RUN_OR_MODEL` prints verdicts on a training
or a model. The first verdict is the likely cause. With each verdict, the command prints the
measured numbers and one setting to change ([options](commands/diagnose.md)). In other trainers and
in your own loop, [`isotrope.Doctor`](guide/sentence-transformers.md#the-doctor) prints the same
verdicts, and names the setting as your trainer calls it. ["Is this normal?"](questions.md) has
examples.

## All verdicts

The page of each verdict explains its meaning, what to do, and when to ignore it. A diagnosis lists
verdicts in the order of this table. If a fault in the list can also produce the numbers of a later
verdict, the diagnosis leaves out the later verdict. For example, a diagnosis with `collapsed`
leaves out `negatives-not-hard`: if all embeddings are one point, no negative is harder than
another.

| verdict | what it means |
|---|---|
{verdicts}

## Thresholds

The table has all thresholds. The page of a verdict explains what its thresholds measure and where
their values come from. A threshold is *crossed* if the measured number meets the condition in the
third column. Most thresholds show a fault if they are crossed. Other thresholds only decide which
threshold is used or which change is proposed, and some prevent the verdict. If the number of a
threshold was not measured, the threshold has no effect. On the pages of the verdicts, a number "at
the end" is the median of the last third of the logged steps. A number "in the first third" is the
median of the first third of the logged steps, without the first step. If you diagnose a saved
model, the numbers are measured on 256 inputs.

| threshold | verdict | crossed if | unit |
|---|---|---|---|
{thresholds}


## How it was tested

The benchmark of the Doctor is a set of small trainings. Some of them are healthy. Into each of the
others, we built one of twelve faults (`make zoo`, [results](results/zoo.csv)). The diagnosis of a
faulty training is right if the first verdict is the built-in fault and the proposed change undoes
this fault. The diagnosis of a healthy training is right if no fault is found. Healthy trainings
whose held-out score fell are not counted.

The benchmark has three parts. We chose thresholds with the part `tuning`, and tested them with the
part `first`, which then had 14 trainings. Three of the 14 diagnoses were wrong. We then changed two
thresholds, so the part `first` is no longer an independent test. The part `judged` is an
independent test: it has other encoders, texts and seeds.

{zoo}

The pages of the verdicts abbreviate the source of a limit:

- *we tuned the limit*: We chose the limit with the trainings of the parts `tuning` and `first`, and
  tested it with the part `judged`.
- *we chose the limit; not in the benchmark*: No training of the benchmark has this fault, and no
  healthy training of the benchmark got this verdict.
- *we chose the limit later*: We added the threshold after the results in the table above. We then
  diagnosed only the healthy text trainings of the part `judged` again. None of them got this
  verdict.
"""

_SOURCES = {
    ZOO: "we tuned the limit",
    OURS: "we chose the limit; not in the benchmark",
    NEWER: "we chose the limit later",
}
"""Sources that "How it was tested" explains, in short."""

_PRINT = "`isotrope diagnose RUN` and `isotrope.Doctor` print this verdict with"
_FIRST = (
    f"{_PRINT} the numbers that decided it and one change to make. Make this change, then train "
    "and diagnose again."
)
_UNKNOWN = (
    f"{_PRINT} its reason, and say what the Doctor needs to judge the training. The verdict is not "
    "a fault of the training."
)
_SOUND = f"{_PRINT} the numbers that decided it. It is no fault, so there is nothing to change."
_PROPOSES = "`isotrope diagnose` proposes this change: "
_TIMES = {
    "at the end": '"At the end" means the median over the last third of the logged steps.',
    "in the first third": '"In the first third" means the median over the first third of the '
    "logged steps, without the first step.",
    "step 0": "Step 0 is the first logged step, before the first update.",
}
"""Explanations of words in the table of thresholds, for the pages that have them."""

_LEGEND = "In this table, "
"""The first words of the explanation of letters above the table of thresholds."""

_FLAG = re.compile(r"--\S+ \S+")
"""A flag with its value at the beginning of a change."""

_ANGLE = re.compile(r"\{(\w+)\}")
_LENGTH_AND_DATA = re.compile(r" \{(?:text|longer|scratch)\}")
"""Placeholders of a command for options that only make a training small."""

_NAMES = "Words in capitals stand for names of encoders, files and columns. "
"""Explanation of words in capitals in a table of trainings, if it has such words."""


def write_diagnosis_pages(docs: Path, zoo: Path) -> list[Path]:
    """Write ``diagnosis.md`` and, for each verdict but healthy, ``diagnoses/VERDICT.md``.

    Args:
        docs: Folder of the documentation, with the sections that are written by hand.
        zoo: Results of benchmarks.zoo, as CSV.

    Returns:
        The files written.
    """
    texts = {docs / "diagnosis.md": diagnosis_page(zoo)}
    for word in VERDICTS:
        file = docs / "diagnoses" / f"{word}.md"
        if word != HEALTHY:
            page = file.read_text(encoding="utf-8") if file.exists() else ""
            texts[file] = verdict_page(word, zoo, page)
    for file, text in texts.items():
        write_text(file, text)
    return list(texts)


def diagnosis_page(zoo: Path) -> str:
    """Return docs/diagnosis.md.

    Args:
        zoo: Results of benchmarks.zoo, as CSV.
    """
    return _PAGE.format(
        verdicts="\n".join(
            f"| {f'`{word}`' if word == HEALTHY else _link(word)} | {verdict.title} |"
            for word, verdict in VERDICTS.items()
        ),
        thresholds="\n".join(
            f"| `{threshold.name}` | [`{word}`](diagnoses/{word}.md) | {_fault(threshold)} |"
            for word, verdict in VERDICTS.items()
            for threshold in verdict.thresholds
        ),
        zoo="\n".join(_zoo(_trainings(zoo))),
    )


def verdict_page(word: str, zoo: Path, page: str) -> str:
    """Return the page of a verdict: what it means, what to do, an example, what decides.

    Args:
        word: The slug of a verdict other than healthy.
        zoo: Results of benchmarks.zoo, as CSV.
        page: The present text of the page, from which the sections written by hand are taken.

    Raises:
        ValueError: One of these sections is missing.
    """
    verdict = VERDICTS[word]
    head = "| threshold | limit | unit | what is measured | source |"
    blocks = [
        f"# {word}",
        _first(word),
        "## What it means",
        verdict.meaning,
        "## What to do",
        *_proposed(word),
        _by_hand(page, word, "What to do"),
        "## An example",
        *_example(word, _trainings(zoo), page),
        "## When to ignore it",
        _by_hand(page, word, "When to ignore it"),
    ]
    end_of_text = f"\n\n(?:{re.escape(head[:12])}|{_LEGEND})"
    decides = re.split(end_of_text, _by_hand(page, word, "What decides"))[0]
    blocks += ["## What decides", decides]
    table = "\n".join([head, "|---|---|---|---|---|", *map(_row, verdict.thresholds)])
    letters = legend("\n\n".join([*blocks, table]))
    blocks += [
        *([_LEGEND + letters] if letters else []),
        table,
        *_times(decides, verdict.thresholds),
        *_order(word),
        "[All verdicts](../diagnosis.md) · [`isotrope diagnose`](../commands/diagnose.md)",
    ]
    return "\n\n".join(blocks) + "\n"


def with_limit(printed: str, name: str) -> str:
    """Return a printed diagnosis with the present limit and source of the threshold that decides.

    Args:
        printed: Output of `isotrope diagnose`, copied from a terminal, with one verdict.
        name: Name of the threshold that decides the verdict.
    """
    threshold = THRESHOLDS[name]
    source = textwrap.fill(
        f"source: {threshold.source}", 96, initial_indent="   ", subsequent_indent="   "
    )
    evidence = re.compile(
        rf"{threshold.label}: ([-\d.]+).*?( among \d+ negatives)? \(a fault if .*\)"
    )
    printed = evidence.sub(
        lambda found: str(compared(name, float(found[1]))).replace(" (", f"{found[2] or ''} ("),
        printed,
    )
    return re.sub(r"   source: .*?(?=\n   change: )", lambda _: source, printed, flags=re.DOTALL)


def _first(word: str) -> str:
    """What a diagnosis prints with a verdict."""
    if not VERDICTS[word].is_fault:
        return _SOUND
    return _UNKNOWN if VERDICTS[word].only_if_healthy else _FIRST


def _proposed(word: str) -> list[str]:
    """The change in the record of a verdict, if it is a flag with the same value in every run."""
    change = VERDICTS[word].change.train
    flag = _FLAG.match(change) if isinstance(change, str) else None
    return [] if flag is None else [f"{_PROPOSES}`{flag[0]}`{flag.string[flag.end() :]}."]


def _times(decides: str, thresholds: Sequence[Threshold]) -> list[str]:
    """The explanations that a table, and the words above it, need: one paragraph or none."""
    shown = "\n".join([decides, *map(_row, thresholds)])
    found = [text for words, text in _TIMES.items() if words in shown]
    return [" ".join(found)] if found else []


def _by_hand(page: str, word: str, title: str) -> str:
    """Return a section of the present page."""
    _, found, rest = page.partition(f"\n## {title}\n\n")
    if not found:
        raise ValueError(f"docs/diagnoses/{word}.md has no section {title!r}; write it")
    section = rest.partition("\n\n## ")[0].rstrip("\n")
    return section.partition("\n\n")[2] if section.startswith(_PROPOSES) else section


def _order(word: str) -> list[str]:
    """The verdicts that follow from this one, and those from which this one follows."""
    lists = (
        (
            f"A diagnosis with `{word}` leaves out these verdicts, which it can cause",
            {*VERDICTS[word].explains} - {word},
        ),
        (
            f"A diagnosis with one of these faults, which can cause `{word}`, leaves it out",
            {cause for cause, verdict in VERDICTS.items() if word in verdict.explains} - {word},
        ),
    )
    lines = [
        f"{what}: {', '.join(_link(w, '') for w in VERDICTS if w in words)}."
        for what, words in lists
        if words
    ]
    return ["## Cause and effect", *lines] if lines else []


def _example(word: str, trainings: Sequence[Mapping[str, str]], page: str) -> list[str]:
    """The trainings of the benchmark with this fault and what was proposed, or a sentence."""
    faulty = [row for row in trainings if row["planted"] == word]
    if not faulty:
        missing = (
            "The verdict is not tested: in the Doctor's "
            "[benchmark](../diagnosis.md#how-it-was-tested), no training was built to get it."
        )
        return [_by_hand(page, word, "An example").removesuffix(missing).strip(), missing]
    lines = ["| training | verdict | change |", "|---|---|---|"]
    each = {row["command"]: row for row in faulty}.values()
    for row in each:
        change = f"`{row['change']}`" if row["change"] else "-"
        shown = _LENGTH_AND_DATA.sub("", row["command"]).replace("{data}/", "")
        command = _ANGLE.sub(lambda found: found[1].upper(), shown).replace("|", "\\|")
        verdicts = ", ".join(f"`{verdict}`" for verdict in row["verdict"].split())
        lines.append(f"| `isotrope {command}` | {verdicts} | {change} |")
    one = len(lines) == 3
    several = any(" " in row["verdict"] for row in each)
    other = any(word not in row["verdict"].split() for row in each)
    return [
        "To test the Doctor, we built faults into small trainings "
        "([how](../diagnosis.md#how-it-was-tested)). "
        f"The {'training' if one else 'trainings'} in the table {'has' if one else 'have'} the "
        "fault that this page describes. The table shows what `isotrope diagnose` printed: the "
        + ("verdicts, and a change for the first of them" if several else "verdict and the change")
        + (". One of the trainings got another verdict" if other and not one else "")
        + ". "
        + (_NAMES if re.search(r"\b[A-Z]{3,}\b", "\n".join(lines)) else "")
        + "Options that only make the training small are left out.",
        "\n".join(lines),
    ]


def _trainings(zoo: Path) -> list[dict[str, str]]:
    with zoo.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def _link(word: str, folder: str = "diagnoses/") -> str:
    return f"[`{word}`]({folder}{word}.md)"


def _row(t: Threshold) -> str:
    """A threshold as a row of the table of its verdict."""
    source = t.source
    for long, short in _SOURCES.items():
        source = source.replace(long, f"[{short}](../diagnosis.md#how-it-was-tested)")
    return f"| `{t.name}` | {_fault(t)} | {t.measured} | {source} |"


def _fault(t: Threshold) -> str:
    """The condition and the unit of a threshold, as two cells of a table."""
    value = f"{100 * t.value:g}%" if t.unit.startswith("of ") else f"{t.value:g}"
    return f"{t.side} {value}".replace("-", "\N{MINUS SIGN}", t.value < 0) + f" | {t.unit}"


def _zoo(trainings: Sequence[Mapping[str, str]]) -> list[str]:
    """How many of each part are right, and which are not."""
    lines = ["| part | faulty trainings: right | healthy trainings: right | wrong diagnoses |"]
    lines += ["|---|---|---|---|"]
    for half in dict.fromkeys(row["half"] for row in trainings):
        run = [row for row in trainings if row["half"] == half and row["verdict"] != "not run"]
        cells = []
        for sound in (False, True):
            kind = [row["right"] for row in run if (row["planted"] == HEALTHY) == sound]
            kind = [mark for mark in kind if mark != "fell"]
            cells.append(f"{kind.count('right')} of {len(kind)}")
        wrong = [
            f"fault {row['animal']}, seed {row['seed']}: verdict {row['verdict']}"
            for row in run
            if row["right"] == "wrong"
        ]
        part = "first, after two thresholds were changed" if half == "first" else half
        lines.append(f"| {part} | {' | '.join(cells)} | {', '.join(wrong) or '-'} |")
    return lines
