"""Writes one page for each objective from its class; objective_texts.py has its TeX and its use.

A page holds the formula, when to use it and when not, the command that trains with it and what that
command leaves, an example, a picture of the three components, the other paragraphs of the docstring
(gradient, shapes, reference), the settings with their ranges, the presets and the properties.
"""

import dataclasses
import doctest
import inspect
import re
from collections.abc import Sequence
from pathlib import Path

from docs.generate.legend import legend
from docs.generate.objective_texts import FOR_BERT, FORMULAS, TRAIN, USES
from docs.generate.triptych import triptych
from isotrope.core.files import atomic_replace
from isotrope.core.hyper import Paper, hypers
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.portrait import paint, rows, shown, summary

_SPACES = {
    "sphere": "embeddings; the loss normalises their rows to length 1",
    "batchnorm": "embeddings; the loss standardises their columns over the batch",
    "raw": "embeddings, used without normalisation",
    "logits": "logits, used without normalisation",
}
_HELD = {
    "nothing": "no input is held constant",
    "negatives": "the negatives are held constant",
    "mixtures": "the mixed negatives are held constant",
    "everything": "everything except the anchor is held constant",
}
_INVARIANCES = {
    "permutation": "a permutation of the rows",
    "rotation": "a rotation of all embeddings",
    "scale": "a change of an embedding's length",
    "view swap": "an exchange of the two views",
}
_FADES = {
    "1": "GD, the factor on the whole gradient of an anchor, is 1 at every angle{default}: an "
    "anchor keeps learning even if its positive is much closer than its negatives. On text, an "
    "objective with such a gradient tends to overfit, so watch the held-out score "
    "([`never-dissipating`](../diagnoses/never-dissipating.md)).",
    "1 or 0": "GD, the factor on the whole gradient of an anchor, falls from 1 to 0 at a "
    "threshold: the anchor stops learning as soon as its positive is far enough ahead of its "
    "negatives. If most anchors stop soon after the start, more training changes little "
    "([`dissipated-early`](../diagnoses/dissipated-early.md)).",
    "1 to 0": "The gradient on an anchor fades as its positive becomes more similar to it than its "
    "negatives are. If the gradients of most anchors fade soon after the start, more training "
    "changes little ([`dissipated-early`](../diagnoses/dissipated-early.md)).",
}
"""Advice for each kind of dissipation."""

_LEFT = {
    "train": "The command fine-tunes {encoder} and prints the score on held-out pairs "
    "before and after training. `{folder}/model` is the trained model. If the score never rose "
    "above its value before training, the folder has the original model instead. "
    "`{folder}/metrics.csv` is the log of the training, with measures of the gradient. "
    "[Example of the output](../commands/train.md#output).",
    "train-images": "The command trains a ResNet-18 from random weights. If the pictures have "
    "labels and a test part, it prints the accuracy of nearest neighbours. `{folder}/model` is "
    "the model; `{folder}/metrics.csv` is the log. "
    "[Example of the output](../commands/train-images.md#output).",
}
_LETTERS = {
    r"\b(h|s|d|theta)_i": "h_i is an anchor, and h'_i is its positive. h_j and h'_j are the two "
    "views of another row. All rows {unit}",
    r"\bx_j": "x_j is a negative of anchor i",
    r"\bs_[ik]": "s_ij is the cosine of h_i and h_j, and s_ij' is the cosine of h_i and h'_j",
    "theta_i": "theta_ij' is the angle between h_i and h'_j",
    r"\bd_i[ijkn]": "d_ij' is the distance between h_i and h'_j",
    r"\b2?N\b": "N is the number of rows of each view",
    r"1/D|\(D \(": "D is the number of coordinates",
    r"\bdirections\b": "The loss has two directions: in one, the rows of the first view are the "
    "anchors; in the other, those of the second view",
    r"\b1\[": "1[...] is 1 if the condition in brackets holds, and 0 if not",
}
"""The letters of the formulas that are not settings, and what they mean."""

_HEADS = (
    "Loss", "Gradient", "Shapes", "Reference",
    "Pairs of views", "Heads", "Target update", "Recipe", "Ours",
)  # fmt: skip
"""The headings with which a paragraph of the docstring of an objective or method may begin."""

_TITLES = {"Ours": "Where we differ from the paper"}
"""The headings that a page prints in other words."""


def write_pages(names: Sequence[str], directory: Path) -> list[Path]:
    """Write ``README.md`` and, for each registered name, ``NAME.md`` and ``NAME.svg``.

    Args:
        names: Registered objectives.
        directory: Folder to write to. It is created if necessary; other files in it are kept.

    Returns:
        The paths of the files.
    """
    texts = {"README.md": index(names).encode()}
    for name in names:
        cls = Objective.registered[name]
        texts[f"{name}.md"] = page(cls).encode()
        drawn = picture(cls)
        if drawn is not None:
            texts[f"{name}.svg"] = drawn
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        with atomic_replace(directory / file) as partial:
            partial.write_bytes(text)
    return [directory / file for file in texts]


def picture(cls: type[Objective]) -> bytes | None:
    """Return a picture of the three components as SVG; None if the objective has none."""
    objective = cls()
    return triptych(paint(objective), cls.name) if objective.has_terms else None


def index(names: Sequence[str]) -> str:
    """Return the table of all objectives in Markdown."""
    header = ["objective", "dissipation", "weight", "ratio", "paper", "equation", "settings"]
    lines = [
        [f"[{cls.__name__}]({name}.md)", *cells]
        for name, cells in rows(names).items()
        for cls in [Objective.registered[name]]
    ]
    values = [
        ["dissipation", "`1`: GD is 1 at every angle, so no anchor stops learning"],
        [
            "",
            "`1 or 0`: the gradient on an anchor stops as soon as its positive is far enough ahead "
            "of its negatives",
        ],
        [
            "",
            "`1 to 0`: the gradient on an anchor fades as its positive becomes more similar to it "
            "than its negatives are",
        ],
        ["weight", "`hardest`: only the most similar negative pushes the anchor"],
        ["", "`all`: all negatives push"],
        ["", "`signed`: some negatives push, others pull"],
        ["", "`none`: nothing pushes"],
        ["ratio", "a number: the ratio has this value at every angle"],
        ["", "`dynamic`: the ratio depends on the angles"],
        ["", "`matrix`: each coordinate of the embedding has its own ratio"],
        ["", "`only pull`: nothing pushes, so there is no ratio"],
        ["all three", "`-`: not defined, because the loss compares no vectors of length 1"],
    ]
    return (
        "# Objectives\n\n"
        "Use this page to find a loss by its gradient. [Choose an objective](../guide/choose.md) "
        "compares the scores after training. The page of each objective has the command that "
        f"trains with it.\n\n{legend('', everything=True)} Together, they give the gradient on "
        "anchor i: GD_i · Σ_j W_ij (x_j − R_i h'_i), where the x_j are the negatives and h'_i is "
        "the positive ([notation](../notation.md)).\n\nThe first table explains the words that "
        "the second table uses for the components. The row `Paradigm` has its default components; "
        "you can replace each of them.\n\n"
        + grid(["component", "values"], values)
        + "\n"
        + grid(header, lines)
    )


def page(cls: type[Objective]) -> str:
    """Return the page of one objective in Markdown."""
    sentence, *paragraphs = (inspect.getdoc(cls) or "").split("\n\n")
    objective = cls()
    train = _command(cls)
    blocks = [f"# {cls.__name__}", escaped(sentence)]
    if cls.name in FORMULAS:  # a new objective is one file: its page needs nothing beside it
        blocks += [f"$$\n{FORMULAS[cls.name]}\n$$"]
    blocks += ["[Notation](../notation.md) · [choose an objective](../guide/choose.md)"]
    blocks += ["## When to use it", *([USES[cls.name]] if cls.name in USES else [])]
    blocks += ["\n".join(f"- {one}" for one in _limits(objective))]
    blocks += ["## Train with it", f"```console\n{train}\n```", left(train)]
    examples = [text for text in paragraphs if text.startswith("Example:")]
    for example in examples:
        blocks += ["## In Python", *_example(cls, example)]
    blocks += ["## The gradient"]
    if objective.has_terms:
        blocks += [
            legend("", everything=True),
            f"![gradient dissipation, weight and ratio of {cls.__name__}]({cls.name}.svg)",
            "The picture shows one anchor with 31 negatives, at the default settings. The left "
            "panel has GD, and the right panel has R. In these two panels, the vertical axis is "
            "the angle between the anchor and its positive, and the horizontal axis is the mean "
            "angle between the anchor and its negatives. The angles between the anchor and each of "
            "its negatives have a standard deviation of 0.1 radians around this mean. In the "
            "middle panel, the vertical axis is W of one negative, and the horizontal axis is the "
            "angle between this negative and the anchor; the angle between the anchor and its "
            "positive is π/6. The picture assumes that the positive and the negatives, without "
            "their parts along the anchor, are orthogonal to each other. The two views of a "
            "negative are equal.",
        ]
    blocks += filter(None, [_letters(objective, "\n\n".join(paragraphs))])
    blocks += [paragraph(text) for text in paragraphs if text not in examples]
    blocks += ["## Settings", settings(cls)]
    if cls.presets:
        blocks += ["## Presets", _presets(cls)]
    blocks += ["## Properties", _declared(objective), "## Source"]
    blocks += [source(cls.paper)]
    return "\n\n".join(blocks) + "\n"


def _letters(objective: Objective, text: str) -> str:
    """Return a line that explains the letters of a docstring, except for those of settings."""
    if objective.space == "logits":
        return ""
    found = [meaning for letter, meaning in _LETTERS.items() if re.search(letter, text)]
    unit = "have length 1" + " with the default `space`" * ("space" in hypers(type(objective)))
    return "Letters of the formulas:\n\n" + "\n".join(
        f"- {escaped(one).format(unit=unit)}." for one in found
    )


def source(paper: Paper) -> str:
    """Return title, authors and equation of a paper; the equation may name the same authors."""
    first, _, last = paper.reference.rpartition(": ")
    if paper.equation.startswith(last):  # the equation repeats the reference, or its last part
        return f"{paper.title}. " + (f"{first}: " if first else "") + f"{paper.equation}."
    authors = paper.reference.rpartition(", ")[0]
    if authors and paper.equation.startswith(f"{authors}, "):  # it repeats them without the year
        return f"{paper.title}. {paper.reference}{paper.equation.removeprefix(authors)}."
    return f"{paper.title}. {paper.reference}; {paper.equation}."


def _command(cls: type[Objective]) -> str:
    """Return the command of a page; an objective for BERT trains BERT, with its preset."""
    train = f"isotrope train pairs.tsv --objective {cls.name} --dev auto --output runs/{cls.name}"
    if cls.name not in FOR_BERT:
        return TRAIN.get(cls.name, train)
    preset = cls.presets["bert-base"]
    return (
        f"{train} \\\n    --encoder bert-base-uncased --objective.preset bert-base "
        f"--learning-rate {preset.learning_rate:g} --batch-size {preset.batch_size}"
    )


def _example(cls: type[Objective], text: str) -> list[str]:
    """Return the docstring's example as a program that can be pasted, and its output."""
    parsed = doctest.DocTestParser().get_examples(inspect.cleandoc(text.partition(":")[2]))
    lines = [one.source.strip() for one in parsed]
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    if all(not line.endswith(f"import {cls.__name__}") for line in imports):
        imports.append(f"from isotrope.objectives import {cls.__name__}")
    body = [
        f"print({one.source.strip()})" if one.want else one.source.strip()
        for one in parsed
        if one.source.strip() not in imports
    ]
    printed = "".join(one.want for one in parsed)
    code = "\n".join(sorted(imports, key=lambda line: "isotrope" in line))
    return [f"```python\n{code}\n\n{chr(10).join(body)}\n```", f"```text\n{printed}```"]


def paragraph(text: str) -> str:
    """Return a paragraph of a docstring in Markdown; its heading ("Loss:") becomes bold.

    The formulas of a gradient, which semicolons separate, become a list.
    """
    head, colon, rest = text.partition(":")
    if not colon or head.split("(")[0].strip() not in _HEADS:
        return escaped(" ".join(text.split()))
    head = _TITLES.get(head, head)
    title, body = f"**{escaped(' '.join(head.split()))}.**", escaped(" ".join(rest.split()))
    formulas, *more = re.split(r"(?<=\.) (?=[A-Z]|h\\_i )", body, maxsplit=1)
    if head != "Gradient" or "; " not in formulas:
        return f"{title} {body}"
    items = "\n".join(f"- {one}" for one in formulas.removesuffix(".").split("; "))
    return "\n\n".join([title, items, *more])


def escaped(text: str) -> str:
    """Return Markdown: mathematics is not emphasis; code, in double backticks, stays as it is."""
    pieces = text.split("``")
    pieces[::2] = ["".join(f"\\{c}" if c in "*<|_" else c for c in prose) for prose in pieces[::2]]
    return "`".join(pieces)


def settings(cls: type, prefix: str = "") -> str:
    """Return the table of a class's hyperparameters, each with its default, range and meaning."""
    fields = hypers(cls)
    if not fields:
        return "None."
    lines = [
        [f"`{prefix}{field}`", hyper.symbol, shown(getattr(cls, field)), hyper.bounds, hyper.help]
        for field, hyper in fields.items()
    ]
    return grid(["setting", "symbol", "default", "allowed", "meaning"], lines)


def _presets(cls: type[Objective]) -> str:
    lines = [
        [
            f"`{name}`",
            ", ".join(f"{field}={shown(value)}" for field, value in preset.values.items()),
            f"{preset.learning_rate:g}",
            str(preset.batch_size),
            preset.source,
        ]
        for name, preset in cls.presets.items()
    ]
    text = (
        "`--objective.preset NAME` sets the values in the line NAME of the table below. It does "
        "not set the learning rate and the batch size with which these values were tuned: set "
        "them by `--learning-rate` and `--batch-size`."
    )
    sources = " ".join(preset.source for preset in cls.presets.values())
    for field, value in dict.fromkeys(re.findall(r"\(with (\w+)=(\w+)\)", sources)):
        text += (
            f" The values were tuned with `{field}={value}`, which the preset does not set either. "
            f"To train as the authors did, add `--objective.{field} {value}`."
        )
    table = grid(["preset", "values", "learning rate", "batch", "tuned in"], lines)
    return f"{text}\n\n{table}"


def left(command: str) -> str:
    """Return sentences on what a training command prints and writes."""
    found = re.search(r"isotrope (train\S*) .*--output (\S+)", command)
    assert found is not None, command
    encoder = re.search(r"--encoder (\S+)", command)
    return _LEFT[found[1]].format(
        folder=found[2], encoder="all-MiniLM-L6-v2" if encoder is None else encoder[1]
    )


def _limits(objective: Objective) -> list[str]:
    """Return sentences on what to watch for and on what the objective cannot do."""
    fades = summary(objective)["dissipation"]
    default = " with the default components" if objective.name == "paradigm" else ""
    limits = [_FADES[fades].format(default=default)] if fades in _FADES else []
    if objective.holds == "everything":
        limits.append(
            "Ignore the loss curve: the loss is a surrogate, which was built to have a chosen "
            "gradient, and its value has no meaning."
        )
    if not objective.takes_negatives:
        limits.append("It does not accept hard negatives (a third column of a file of pairs).")
    if not objective.pairwise:
        limits.append("It ignores `--groups`: it treats all rows of a batch alike.")
    return limits


def _declared(objective: Objective) -> str:
    both = "first the rows of one view, then the rows of the other view"
    usual = " (with the default settings)" if "space" in hypers(type(objective)) else ""
    value = (
        "one number for the whole batch"
        if objective.batch_level
        else f"the {objective.reduction} of the losses of the anchors"
    )
    first = (
        f"the rows of the first view. `{type(objective).__name__}().symmetric()` is the mean of "
        "two losses, each with the rows of one view as anchors"
    )
    grouped = (
        "rows with the same value of `groups` are not negatives of each other"
        if objective.pairwise
        else "`groups` has no effect"
    )
    lines = [
        f"- Input: {_input(objective)}.",
        f"- Value: {value}.",
        f"- Anchors: {both if objective.two_directions else first}.",
        f"- Additional negatives: {_accepted(objective)}.",
        f"- Groups: {grouped}.",
        f"- Stop-gradient: {_held(objective)}.",
        f"- The loss does not change{usual} under: "
        f"{', '.join(_INVARIANCES.get(one, one) for one in sorted(objective.invariances))}.",
    ]
    return "The class declares these properties, and tests check them.\n\n" + "\n".join(lines)


def _held(objective: Objective) -> str:
    """Return what an objective holds constant; the released code pulls positives as well."""
    if objective.space == "logits":
        return "the positives (the teacher's logits) are held constant"
    pulled = objective.holds == "everything" and _released(objective)
    return _HELD[objective.holds] + (
        '; with `variant="released"`, the positive is not constant' * pulled
    )


def _input(objective: Objective) -> str:
    """What an objective does to its inputs, by its setting ``space`` if it has one."""
    space = hypers(type(objective)).get("space")
    spaces = space.choices if space is not None else (objective.space,)
    known = [_SPACES[str(one)] + ("" if space is None else f' (`space="{one}"`)') for one in spaces]
    return "; ".join([known[0], *(text.removeprefix("embeddings; ") for text in known[1:])])


def _accepted(objective: Objective) -> str:
    if not objective.takes_negatives:
        return "refused"
    other = dataclasses.replace(objective, variant="released") if _released(objective) else None
    accepted = other is None or other.takes_negatives
    return "accepted" if accepted else 'accepted with `variant="paper"` only'


def _released(objective: Objective) -> bool:
    variant = hypers(type(objective)).get("variant")
    return variant is not None and "released" in variant.choices


def grid(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    cells = [header, ["---"] * len(header), *lines]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped) + "\n"
