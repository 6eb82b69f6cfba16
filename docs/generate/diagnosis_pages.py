"""The pages on diagnosis: the tables of all verdicts and thresholds, and one page for each verdict.

Written by `make docs` from the rules, the thresholds and the zoo; nothing on them is kept by hand.
"""

import csv
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from isotrope.core.files import atomic_replace
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import HEALTHY, VERDICTS, Finding
from isotrope.diagnostics.rules import EXPLAINS, RULES
from isotrope.diagnostics.rules.seen import not_enough_seen, not_finite
from isotrope.diagnostics.thresholds import THRESHOLDS

__all__ = ["diagnosis_page", "verdict_page", "write_diagnosis_pages"]

_PAGE = """# Diagnosis

Written by `make docs` from `isotrope.diagnostics`.

`isotrope diagnose RUN_OR_MODEL` says what is wrong with a run or a model, the root cause first,
with its numbers and one change in the words of the command line; `isotrope diagnose --help` has the
options. In other people's trainers and in a loop of one's own `isotrope.Doctor` measures the same
numbers, and its `diagnose()` says the same, with the change in the words of that trainer.

## Verdicts

In the order in which they are told. What a finding explains is not told besides it: in a batch that
has become a point no negative is harder than another.

| verdict | what it means |
|---|---|
{verdicts}

## Thresholds

A run's numbers are those of its log: "the end" is the median of the last third of the logged steps.
Of a model they are those of 256 inputs. A number that was not measured decides nothing.

| threshold | value | unit | sick | what it decides | source |
|---|---|---|---|---|---|
{thresholds}

## The zoo

Small real trainings, broken on purpose in twelve ways, and healthy ones (`make zoo`;
docs/results/zoo.csv). An animal is right if the planted cause is named first, with the change that
undoes it, or if nothing is found in a healthy one; one whose dev score fell was not healthy, and is
not counted. Thresholds were set on the part `tuning`, then judged on `first`. Of the 14 animals of
`first` that had been trained by then, three came out wrong: `learning-rate`, and two healthy ones
called dissipated-early, because all-MiniLM-L6-v2 has nothing to learn from STS-B's paraphrases
(another encoder has taken its place there). Two thresholds were changed for it, so that `first` no
longer judges; the part `judged`, with other encoders, corpora and seeds, does.

{zoo}
"""


def write_diagnosis_pages(docs: Path, zoo: Path) -> list[Path]:
    """Write ``diagnosis.md`` and, for each verdict but healthy, ``diagnoses/VERDICT.md``.

    Args:
        docs: folder of the documentation.
        zoo: the table of benchmarks.zoo, as CSV.

    Returns:
        What was written.
    """
    texts = {docs / "diagnosis.md": diagnosis_page(zoo)}
    texts |= {
        docs / "diagnoses" / f"{word}.md": verdict_page(word, zoo)
        for word in VERDICTS
        if word != HEALTHY
    }
    (docs / "diagnoses").mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        with atomic_replace(file) as partial:
            partial.write_text(text, encoding="utf-8")
    return list(texts)


def diagnosis_page(zoo: Path) -> str:
    """Return docs/diagnosis.md.

    Args:
        zoo: the table of benchmarks.zoo, as CSV.
    """
    return _PAGE.format(
        verdicts="\n".join(
            f"| {f'`{word}`' if word == HEALTHY else _link(word)} | {meaning} |"
            for word, meaning in VERDICTS.items()
        ),
        thresholds="\n".join(map(_row, THRESHOLDS)),
        zoo="\n".join(_zoo(_animals(zoo))),
    )


def verdict_page(word: str, zoo: Path) -> str:
    """Return the page of a verdict: what it is, what decides, what follows, what showed it.

    Args:
        word: one of isotrope.diagnostics.findings.VERDICTS, not healthy.
        zoo: the table of benchmarks.zoo, as CSV.
    """
    said = [" ".join((inspect.getdoc(rule) or "").split()) for rule in _rules(word)]
    meaning = VERDICTS[word].capitalize()
    named = [name for name, t in THRESHOLDS.items() if t.decides.startswith(word)]
    head = (
        "| threshold | value | unit | sick | what it decides | source |\n|---|---|---|---|---|---|"
    )
    blocks = [
        f"# {word}",
        "Written by `make docs` from the rules of `isotrope.diagnostics`. "
        "[All verdicts](../diagnosis.md) · [`isotrope diagnose`](../commands/diagnose.md)",
        *([] if said[0].startswith(meaning) else [f"{meaning}."]),
        *said,
        "## What decides",
        "\n".join([head, *map(_row, named)]),
        *_order(word),
        *_seen(word, _animals(zoo)),
    ]
    return "\n\n".join(blocks) + "\n"


def _rules(word: str) -> list[Callable[[RunEvidence], Finding | None]]:
    """The rules that come to a verdict; they bear its name, but for that of infinite numbers."""
    named = {rule: rule.__name__.replace("_", "-") for rule in (*RULES, not_enough_seen)}
    named[not_finite] = "diverging"
    return [rule for rule, verdict in named.items() if verdict == word]


def _order(word: str) -> list[str]:
    """What is not told besides a verdict, and besides what it is not told."""
    lists = (
        ("Not told besides it, because it explains them", EXPLAINS.get(word, set()) - {word}),
        (
            "Not told where one of these is found",
            {w for w in EXPLAINS if word in EXPLAINS[w]} - {word},
        ),
    )
    lines = [
        f"{what}: {', '.join(_link(w, '') for w in VERDICTS if w in words)}."
        for what, words in lists
        if words
    ]
    return ["## Cause and effect", *lines] if lines else []


def _seen(word: str, animals: Sequence[Mapping[str, str]]) -> list[str]:
    """The trainings of the zoo that were broken so, and what was proposed."""
    of_it = [row for row in animals if row["planted"] == word]
    if not of_it:
        return ["## In the zoo", "No training of the zoo (`make zoo`) is broken so."]
    lines = ["| part | training | found | proposed |", "|---|---|---|---|"]
    for row in of_it:
        change = f"`{row['change']}`" if row["change"] else "-"
        command = f"`isotrope {row['command']}`".replace("|", "\\|")
        lines.append(f"| {row['half']} | {command} | `{row['verdict']}` | {change} |")
    return ["## In the zoo", "Trainings broken on purpose (`make zoo`).", "\n".join(lines)]


def _animals(zoo: Path) -> list[dict[str, str]]:
    with zoo.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def _link(word: str, folder: str = "diagnoses/") -> str:
    return f"[`{word}`]({folder}{word}.md)"


def _row(name: str) -> str:
    """A threshold as a row of a table."""
    t = THRESHOLDS[name]
    return f"| `{name}` | {t.value:g} | {t.unit} | {t.side} | {t.decides} | {t.source} |"


def _zoo(animals: Sequence[Mapping[str, str]]) -> list[str]:
    """How many of each part are right, and which are not."""
    lines = ["| part | broken, cause named first | healthy, nothing found | not right |"]
    lines += ["|---|---|---|---|"]
    for half in dict.fromkeys(row["half"] for row in animals):
        run = [row for row in animals if row["half"] == half and row["verdict"] != "not run"]
        cells = []
        for sound in (False, True):
            kind = [row["right"] for row in run if (row["planted"] == HEALTHY) == sound]
            kind = [mark for mark in kind if mark != "fell"]
            cells.append(f"{kind.count('right')} of {len(kind)}")
        wrong = [
            f"{row['animal']} (seed {row['seed']}: {row['verdict']})"
            for row in run
            if row["right"] == "wrong"
        ]
        lines.append(f"| {half} | {' | '.join(cells)} | {', '.join(wrong) or '-'} |")
    return lines
