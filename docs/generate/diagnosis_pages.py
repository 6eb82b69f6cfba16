"""The pages on diagnosis: the tables of all verdicts and thresholds, and one page for each verdict.

Written by `make docs` from the rules, the thresholds and the benchmark of broken trainings; what to
do about a verdict is in verdict_advice.
"""

import csv
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from docs.generate.verdict_advice import ADVICE
from isotrope.core.files import atomic_replace
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import HEALTHY, VERDICTS, Finding
from isotrope.diagnostics.verdict import THRESHOLDS
from isotrope.diagnostics.verdicts import EXPLAINS, RULES
from isotrope.diagnostics.verdicts.log_quality import not_enough_seen, not_finite
from isotrope.diagnostics.verdicts.similarities import spreading

__all__ = ["diagnosis_page", "verdict_page", "write_diagnosis_pages"]

_PAGE = """# Verdicts and thresholds

`isotrope diagnose RUN_OR_MODEL` says whether something is wrong with a training or a model. It
names the root cause first, with the numbers behind it and one setting to change ([its
options](commands/diagnose.md)). In other people's trainers and in a training loop of your own,
[`isotrope.Doctor`](guide/sentence-transformers.md#the-doctor) measures the same numbers and gives
the same verdicts, with the change in the words of that trainer. What it said about public
questions is on ["Is this normal?"](questions.md).

## All verdicts

Each page says what a verdict means, what to do, and when to ignore it. The order is the order of
priority. Consequences of a cause that was found are not listed: once all embeddings are one point,
no negative is harder than another.

| verdict | what it means |
|---|---|
{verdicts}

## Thresholds

For a training, "the end" is the median of the last third of the logged steps. For a saved model,
the numbers are measured on 256 inputs. A number that is missing decides nothing.

| threshold | value | unit | a fault if | what it decides | source |
|---|---|---|---|---|---|
{thresholds}

## How it was tested

The benchmark is a set of small real trainings: healthy ones, and others with one of twelve faults
planted (`make zoo`, [results](results/zoo.csv)). A faulty training counts as right if the planted
fault is named first, with the change that undoes it; a healthy one counts as right if nothing is
found. Healthy trainings whose held-out score fell are not counted.

Thresholds were set on the part `tuning`, then judged on `first`. Of the 14 trainings of `first`
that existed by then, three came out wrong: `learning-rate`, and two healthy ones called
dissipated-early, because all-MiniLM-L6-v2 has nothing to learn from STS-B's paraphrases (another
encoder has taken its place there). Two thresholds were changed because of that, so `first` can no
longer judge them. The part `judged`, with other encoders, texts and seeds, can. The verdict
`nothing-left-to-learn` is newer than these results; only the benchmark's healthy text trainings in
`judged` were diagnosed again with it, and none of them got this verdict.

{zoo}
"""


def write_diagnosis_pages(docs: Path, zoo: Path) -> list[Path]:
    """Write ``diagnosis.md`` and, for each verdict but healthy, ``diagnoses/VERDICT.md``.

    Args:
        docs: folder of the documentation.
        zoo: the results of benchmarks.zoo, as CSV.

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
        zoo: the results of benchmarks.zoo, as CSV.
    """
    return _PAGE.format(
        verdicts="\n".join(
            f"| {f'`{word}`' if word == HEALTHY else _link(word)} | {meaning} |"
            for word, meaning in VERDICTS.items()
        ),
        thresholds="\n".join(map(_row, THRESHOLDS)),
        zoo="\n".join(_zoo(_trainings(zoo))),
    )


def verdict_page(word: str, zoo: Path) -> str:
    """Return the page of a verdict: what it means, what to do, an example, what decides.

    Args:
        word: one of isotrope.diagnostics.findings.VERDICTS, not healthy.
        zoo: the results of benchmarks.zoo, as CSV.
    """
    rules = [" ".join((inspect.getdoc(rule) or "").split()) for rule in _rules(word)]
    advice = ADVICE[word]
    named = [name for name, t in THRESHOLDS.items() if t.decides.startswith(word)]
    head = "| threshold | value | unit | a fault if | what it decides | source |"
    blocks = [
        f"# {word}",
        "## What it means",
        advice.means,
        "## What to do",
        "\n".join(f"{i}. {step}" for i, step in enumerate(advice.steps, 1)),
        "## An example",
        *_example(word, _trainings(zoo)),
        "## When to ignore it",
        advice.ignore,
        "## What decides",
        *rules,
        "\n".join([head, "|---|---|---|---|---|---|", *map(_row, named)]),
        *_order(word),
        "[All verdicts](../diagnosis.md) · [`isotrope diagnose`](../commands/diagnose.md)",
    ]
    return "\n\n".join(blocks) + "\n"


def _rules(word: str) -> list[Callable[[RunEvidence], Finding | None]]:
    """The rules that come to a verdict; they bear its name, but for that of infinite numbers."""
    named = {rule: rule.__name__.replace("_", "-") for rule in (*RULES, spreading, not_enough_seen)}
    named[not_finite] = "diverging"
    return [rule for rule, verdict in named.items() if verdict == word]


def _order(word: str) -> list[str]:
    """Which verdicts follow from this one, and from which it follows."""
    lists = (
        ("When this is found, these are not listed", EXPLAINS.get(word, set()) - {word}),
        (
            "This is not listed when one of these is found",
            {w for w in EXPLAINS if word in EXPLAINS[w]} - {word},
        ),
    )
    lines = [
        f"{what}: {', '.join(_link(w, '') for w in VERDICTS if w in words)}."
        for what, words in lists
        if words
    ]
    return ["## Cause and effect", *lines] if lines else []


def _example(word: str, trainings: Sequence[Mapping[str, str]]) -> list[str]:
    """The trainings of the benchmark with this fault and what was proposed, or a sentence."""
    faulty = [row for row in trainings if row["planted"] == word]
    if not faulty:
        return [ADVICE[word].example, "The benchmark has no training with this fault."]
    lines = ["| training | verdict | proposed |", "|---|---|---|"]
    for row in {row["command"]: row for row in faulty}.values():
        change = f"`{row['change']}`" if row["change"] else "-"
        command = f"`isotrope {row['command']}`".replace("|", "\\|")
        lines.append(f"| {command} | `{row['verdict']}` | {change} |")
    return [
        "These trainings have the fault on purpose ([how it was tested]"
        "(../diagnosis.md#how-it-was-tested)); words in braces stand for files and encoders.",
        "\n".join(lines),
    ]


def _trainings(zoo: Path) -> list[dict[str, str]]:
    with zoo.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def _link(word: str, folder: str = "diagnoses/") -> str:
    return f"[`{word}`]({folder}{word}.md)"


def _row(name: str) -> str:
    """A threshold as a row of a table."""
    t = THRESHOLDS[name]
    return f"| `{name}` | {t.value:g} | {t.unit} | {t.side} it | {t.decides} | {t.source} |"


def _zoo(trainings: Sequence[Mapping[str, str]]) -> list[str]:
    """How many of each part are right, and which are not."""
    lines = ["| part | faulty, fault named first | healthy, nothing found | not right |"]
    lines += ["|---|---|---|---|"]
    for half in dict.fromkeys(row["half"] for row in trainings):
        run = [row for row in trainings if row["half"] == half and row["verdict"] != "not run"]
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
        part = "first, after two thresholds were changed" if half == "first" else half
        lines.append(f"| {part} | {' | '.join(cells)} | {', '.join(wrong) or '-'} |")
    return lines
