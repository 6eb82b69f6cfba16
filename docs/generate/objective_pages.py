"""One page for each objective, written from its class; its TeX and its use are in objective_texts.

A page holds the formula, when to use it, the line that trains with it, an example, a picture of the
three components, the rest of the card (gradient, shapes, reference), the settings with their
ranges, the presets and what the class declares.
"""

import doctest
import inspect
import re
from collections.abc import Sequence
from pathlib import Path

from docs.generate.objective_texts import FORMULAS, TRAIN, USES
from docs.generate.triptych import triptych
from isotrope.core.files import atomic_replace
from isotrope.core.hyper import hypers
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.portrait import paint, rows, shown

_SPACES = {
    "sphere": "rows normalised to length 1",
    "batchnorm": "columns standardised over the batch",
    "raw": "embeddings as they are",
    "logits": "logits as they are",
}
_HELD = {
    "nothing": "nothing",
    "negatives": "the negatives",
    "everything": "everything but the anchor (the value is a surrogate)",
}
_HEADS = (
    "Loss", "Gradient", "Shapes", "Reference",
    "Pairs of views", "Heads", "Target update", "Recipe", "Ours",
)  # fmt: skip
"""What a paragraph of a card, of an objective or of a method, may begin with."""


def write_pages(names: Sequence[str], directory: Path) -> list[Path]:
    """Write ``README.md`` and, for each registered name, ``NAME.md`` and ``NAME.svg``.

    Args:
        names: registered objectives.
        directory: made if it is not there; other files in it stay.

    Returns:
        What was written.
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
    """Return the three components as SVG, None where there are none."""
    objective = cls()
    return triptych(paint(objective), cls.name) if objective.has_terms else None


def index(names: Sequence[str]) -> str:
    """Return the list of objectives with a line on each, in Markdown."""
    header = ["objective", "dissipation", "weight", "ratio", "paper", "equation", "settings"]
    lines = [
        [f"[{cls.__name__}]({name}.md)", *cells]
        for name, cells in rows(names).items()
        for cls in [Objective.registered[name]]
    ]
    values = [
        ["dissipation", "1: never ends; 1 or 0: ends at a margin; 1 to 0: fades"],
        ["weight", "on the hardest negative, on all, or signed: some negatives are pulled"],
        ["ratio", "a number; dynamic; matrix: one for each coordinate; or only the positive pulls"],
    ]
    return (
        "# Objectives\n\n"
        "Find a loss by its gradient. [Choose an objective](../guide/choose.md) says what was "
        "measured. The gradient on an anchor is GD · Σ_j W_ij (x_j − R_ij h'_i) "
        "([notation](../notation.md)), with dissipation GD, weight W and ratio R:\n\n"
        + grid(["component", "values"], values)
        + "\n"
        + grid(header, lines)
    )


def page(cls: type[Objective]) -> str:
    """Return the page of one objective in Markdown."""
    sentence, *paragraphs = (inspect.getdoc(cls) or "").split("\n\n")
    objective = cls()
    train = TRAIN.get(
        cls.name,
        f"isotrope train pairs.tsv --objective {cls.name} --dev auto --output runs/{cls.name}",
    )
    blocks = [f"# {cls.__name__}", escaped(sentence)]
    if cls.name in FORMULAS:  # a new objective is one file: its page needs nothing beside it
        blocks += [f"$$\n{FORMULAS[cls.name]}\n$$"]
    if cls.name in USES:
        blocks += ["## When to use it", USES[cls.name]]
    blocks += ["## Train with it", f"```console\n{train}\n```"]
    blocks += ["[Notation](../notation.md) · [choose an objective](../guide/choose.md)"]
    examples = [text for text in paragraphs if text.startswith("Example:")]
    for example in examples:
        blocks += ["## In Python", *_example(cls, example)]
    blocks += ["## The gradient"]
    if objective.has_terms:
        blocks += [
            f"![gradient dissipation, weight and ratio of {cls.__name__}]({cls.name}.svg)",
            "Left and right: GD and R over the angles of the positive and of 31 negatives "
            "(standard deviation 0.1 around their mean). Middle: W of each negative by its angle, "
            "with the positive at π/6.",
        ]
    blocks += [paragraph(text) for text in paragraphs if text not in examples]
    blocks += ["## Settings", settings(cls)]
    if cls.presets:
        blocks += ["## Presets", _presets(cls)]
    blocks += ["## Declared", _declared(objective), "## Source"]
    blocks += [f"{cls.paper.title}. {cls.paper.reference}; {cls.paper.equation}."]
    return "\n\n".join(blocks) + "\n"


def _example(cls: type[Objective], text: str) -> list[str]:
    """The docstring's example as a program that can be pasted, and what it prints."""
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
    """Return a paragraph of the card; one that starts with a word and a colon gets it in bold.

    The formulas of a gradient, which semicolons separate, become a list.
    """
    head, colon, rest = text.partition(":")
    if not colon or head.split("(")[0].strip() not in _HEADS:
        return escaped(" ".join(text.split()))
    title, body = f"**{escaped(' '.join(head.split()))}.**", escaped(" ".join(rest.split()))
    formulas, *more = re.split(r"(?<=\.) (?=[A-Z])", body, maxsplit=1)
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
    return grid(["preset", "values", "learning rate", "batch", "tuned in"], lines)


def _declared(objective: Objective) -> str:
    both = f"both views, {'summed' if objective.reduction == 'sum' else 'averaged'}"
    anchors = both if objective.two_directions else "the first view (`symmetric()`: both)"
    grouped = (
        "are not negatives of each other" if objective.pairwise else "are treated as others are"
    )
    lines = [
        f"- sees: {_SPACES[objective.space]}",
        f"- value: one {'for the batch' if objective.batch_level else 'for each anchor'}",
        f"- anchors: {anchors}",
        f"- additional negatives: {'yes' if objective.takes_negatives else 'no'}",
        f"- rows of one group {grouped}",
        f"- held constant: {_HELD[objective.holds]}",
        f"- invariant under: {', '.join(sorted(objective.invariances))}",
    ]
    return "\n".join(lines)


def grid(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    cells = [header, ["---"] * len(header), *lines]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped) + "\n"
