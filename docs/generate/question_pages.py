"""The page on public questions: the question, the verdict, and the score after the change.

Written by `make docs` from the results of benchmarks/questions.py, and from a list of symptoms.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.generate.objective_pages import grid
from isotrope.core.files import write_text
from isotrope.diagnostics.findings import HEALTHY
from isotrope.diagnostics.verdicts import VERDICTS

_PAGE = """# Is this normal?

Use this page to look up a question like yours. To check your own training, add
`callbacks=[isotrope.Doctor()]` to its trainer. We took {count} questions about training embedding
models from GitHub, and ran a small training with the settings of each question. In each training,
[`isotrope.Doctor`](guide/sentence-transformers.md#the-doctor) gave a verdict and proposed a
change. We made this change, and trained again.

## {count} questions

The last column has the MRR@10 (out of 100) before training, after the training in question, and
after the changed training. If the verdict on the changed training was not healthy, it is in
parentheses in the column *change made*. A dash means that nothing was changed, or that no score was
measured. `scale` is 1 divided by the temperature. *(wrong)* marks a verdict that we did not expect
([how the answers were judged](#how-the-answers-were-judged)).

{questions}

## How the answers were judged

We committed the expected verdict before we ran the training. An answer is right if the Doctor
prints this verdict first, and no longer prints it after the change. The score does not have to
rise: some changed trainings end with a lower score than the encoder had before training.

| questions | right |
| --- | --- |
| all | {right} of {count} |
| all except {seen}: after seeing these, we changed a rule or the training | {judged} of {judging} |

The [table](results/questions.csv) once had two more rows, both with wrong answers. The log
[says why we removed them](LOG.md#public-questions-that-left-the-table). {misses}

All trainings have these settings:

| setting | value |
| --- | --- |
| score | MRR@10 on 100 held-out pairs; a few points are noise |
| training | 12 steps, one seed, in sentence-transformers' trainer |
| encoder | all-MiniLM-L6-v2 |
| "a masked language model" | the same encoder after 1,924 steps of masked language modelling |
| data | docstrings of Python's library |
| command | `python benchmarks/questions.py` |

## Symptoms and numbers

sentence-transformers lists [23 symptoms]({list}) of failed trainings. {visible} of these symptoms
show in the embeddings and their gradient, and isotrope helps with three more. The table has these
nine symptoms. The names in the second column are those of the
[logged numbers](guide/anatomy.md#all-columns). The other 14 symptoms are about machines, files,
accounts and other kinds of model.

{table}
"""

_LIST = (
    "https://github.com/huggingface/sentence-transformers/blob/main/skills/"
    "train-sentence-transformers/references/troubleshooting.md"
)


@dataclass(frozen=True)
class Symptom:
    """A symptom of their list.

    Attributes:
        name: Name of the symptom, in our words.
        numbers: Columns of metrics.csv, or other measurements, that show it; empty if none does.
        verdicts: The verdicts that follow.
        other: Another part of isotrope that answers it.
    """

    name: str
    numbers: str = ""
    verdicts: tuple[str, ...] = ()
    other: str = ""


SYMPTOMS = (
    Symptom("out of memory", other="`CachedObjectiveLoss`, `--micro-batch`"),
    Symptom(
        "the loss is NaN, infinite, or jumps",
        "`loss`, `norm`, `std`: not finite, or many times as large as at the start",
        ("diverging",),
    ),
    Symptom(
        "scores stay at the baseline",
        "`dead` at the first step; angles of positives and negatives at the first step; "
        "`false_negatives`; `hardest_share`",
        (
            "nothing-left-to-learn",
            "unrelated-positives",
            "false-negatives",
            "negatives-not-hard",
            "temperature-too-low",
        ),
    ),
    Symptom("a cached loss ends with an error of autograd", other="`isotrope check`"),
    Symptom(
        "nothing arrives in the tracker",
        other="`OUTPUT_DIR/isotrope/metrics.csv` has the same numbers",
    ),
    Symptom(
        "the base model gives constant vectors, zeros or NaN",
        "`uniformity`, `std`, `effective_rank` at the first step",
        ("collapsed", "dimensional-collapse", "anisotropic-start"),
    ),
    Symptom(
        "the evaluation is perfect from the first step on",
        "`dead` at the first step, if the training pairs are as easy as the evaluation. isotrope "
        "does not notice test data among the training data",
        ("nothing-left-to-learn",),
    ),
    Symptom(
        "the score rose by half a point: is it real?",
        "interval of a paired bootstrap over queries (`evaluate --compare`)",
        other="`isotrope evaluate --compare`",
    ),
    Symptom(
        "the backward pass of a cached loss fails with LoRA",
        "the Doctor reports that no gradient reaches the embeddings",
        ("not-enough-seen",),
    ),
)
"""The symptoms of the list that isotrope shows or helps with, in its order."""


def write_question_page(docs: Path, results: Path) -> Path:
    """Write questions.md into a folder, and return its path.

    Args:
        docs: Folder of the documentation.
        results: The table of benchmarks/questions.py.
    """
    file = docs / "questions.md"
    write_text(file, question_page(results))
    return file


def question_page(results: Path) -> str:
    """Return docs/questions.md.

    Args:
        results: The table of benchmarks/questions.py.
    """
    with results.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    misses = [row for row in rows if row["right"] != "yes"]
    judging = [row for row in rows if row["judges"] == "yes"]
    seen = [row for row in rows if row["judges"] != "yes"]
    visible = [symptom for symptom in SYMPTOMS if symptom.numbers]
    return _PAGE.format(
        count=len(rows),
        right=len(rows) - len(misses),
        seen=str(len(seen)),
        judging=len(judging),
        judged=sum(row["right"] == "yes" for row in judging),
        questions=_questions(rows).rstrip(),
        misses=_misses(misses),
        list=_LIST,
        visible=len(visible),
        table=_symptoms().rstrip(),
    )


def _questions(rows: Sequence[Mapping[str, str]]) -> str:
    header = ["question", "setting", "verdict", "change made", "MRR@10"]
    return grid(
        header,
        [
            [
                f"{row['asks']} ({_links(row)})",
                row["setting"],
                _verdicts(row["verdict"]) + " (wrong)" * (row["right"] != "yes"),
                _change(row),
                _scores(row),
            ]
            for row in rows
        ],
    )


def _change(row: Mapping[str, str]) -> str:
    """Return what was changed, with the verdict after it if that is not healthy."""
    after = row["verdict_after"]
    left = f" (then {_verdicts(after)})" if after not in ("", HEALTHY) else ""
    return (row["changed"] or "-") + left


def _links(row: Mapping[str, str]) -> str:
    """Return links to the question, and to others about the same situation."""
    links, before = [f"[{row['id']}]({row['url']})"], row["id"].rpartition(" ")[0]
    for url in filter(None, row["also"].split(" | ")):
        repository, _, number = _name(url).rpartition(" ")
        links.append(f"[{number if repository == before else f'{repository} {number}'}]({url})")
        before = repository
    return ", ".join(links)


def _name(url: str) -> str:
    _, repository, _, number = url.rsplit("/", 3)
    return f"{repository} {number}"


def _scores(row: Mapping[str, str]) -> str:
    scores = [row[name] for name in ("mrr_start", "mrr_before", "mrr_after") if row[name]]
    return ", ".join(f"{100 * float(score):.1f}" for score in scores) or "-"


def _verdicts(words: str) -> str:
    return ", ".join(_verdict(word) for word in words.split(", "))


def _verdict(word: str) -> str:
    assert word in VERDICTS
    return word if word == "healthy" else f"[`{word}`](diagnoses/{word}.md)"


def _misses(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return "No answer is wrong now."
    said = [
        f"- {row['id']}: expected {row['expected'].replace(' | ', ' or ')}, got {row['verdict']}"
        + (f", and {row['verdict_after']} after the change." if row["verdict_after"] else ".")
        for row in rows
    ]
    return "\n".join(["These answers are wrong:", "", *said])


def _symptoms() -> str:
    return grid(
        ["symptom", "numbers that show it", "verdict", "other help"],
        [
            [
                symptom.name,
                symptom.numbers or "-",
                ", ".join(map(_verdict, symptom.verdicts)) or "-",
                symptom.other or "-",
            ]
            for symptom in SYMPTOMS
        ],
    )
