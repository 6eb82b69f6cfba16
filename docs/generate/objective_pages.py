"""Writes one page for each objective from its class; objective_texts.py has its TeX and its use.

A page holds the formula and its letters, when to use the objective and when not, the command that
trains with it and what that command writes, an example, the settings with their ranges, the
presets, a picture of the three components, the other paragraphs of the docstring (gradient, shapes,
reference) and the properties.
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
    "sphere": "the loss scales each embedding to length 1",
    "batchnorm": "the loss standardises each coordinate over the batch",
    "raw": "the loss takes the embeddings as they are",
    "logits": "the loss takes the logits as they are",
}
_HELD = {
    "nothing": "none; gradients flow to all inputs",
    "negatives": "the negatives are held constant",
    "mixtures": "the mixed negatives are held constant",
    "everything": "everything except the anchor is held constant",
}
_INVARIANCES = {
    "permutation": "a permutation of the pairs",
    "rotation": "a rotation of all embeddings",
    "scale": "a change of an embedding's length",
    "view swap": "an exchange of the two views",
}
_FADES = {
    "1": "An anchor never stops learning{default}, even if its positive is much closer than its "
    "negatives. On text, such an objective tends to overfit, so watch the held-out score "
    "([`never-dissipating`](../diagnoses/never-dissipating.md)).",
    "1 or 0": "An anchor stops learning as soon as its positive is closer than its negatives by a "
    "margin. If most anchors stop soon after the start, more training changes little "
    "([`dissipated-early`](../diagnoses/dissipated-early.md)).",
    "1 to 0": "An anchor learns little once its positive is much closer than its negatives. "
    "If this happens to most anchors soon after the start, more training changes little "
    "([`dissipated-early`](../diagnoses/dissipated-early.md)).",
}
"""Advice for each kind of dissipation."""

_LEFT = {
    "train": "Each line of `pairs.tsv` has two texts that belong together, such as a question and "
    "its answer, with a tab between them. The command fine-tunes {encoder}. "
    "`--dev auto` holds out a tenth of the pairs; the command prints the score on these pairs "
    "{scored} `{folder}/metrics.csv` is the log of the training: the loss, and measures of the "
    "gradient. "
    "[Example of the output](../commands/train.md#output).",
    "train-images": "`{data}` is a folder of images. The command trains a ResNet-18 from random "
    "weights. With labels and a test part, the command prints the accuracy of nearest "
    "neighbours during training, and that of a linear classifier at the end. "
    "`{folder}/model` is the encoder after the last step. `{folder}/metrics.csv` is the log of the "
    "training. [Example of the output](../commands/train-images.md#output).",
}
_LETTERS = {
    r"\b(h|s|d|theta)_i": "h_i is the embedding of an anchor, and h'_i is that of its positive. "
    "In the formulas, the anchors are the first view of the batch, and the positives are the "
    "second view{exchanged}. {other}. All embeddings {unit}",
    r"\bx_j": "x_j is a negative of anchor i",
    r"\bh'?_[ijkl]\.\w": "h_i.h_j is the dot product of two embeddings",
    r"(?s)\A(?!.*a negative j).*\bs_[ik]": "s_ij is the cosine similarity of h_i and h_j, and "
    "s_ij' is that of h_i and h'_j",
    r"\ba negative j\b": "s_ii' is the cosine similarity of h_i and h'_i, and s_ij is that of h_i "
    "and a negative j",
    "theta_i": "theta_ij' is the angle between h_i and h'_j",
    r"\bd_i[ijkn]": "d_ij' is the distance between h_i and h'_j",
    r"\b2?N\b": "N is the number of pairs in the batch (n under Shapes)",
    r"1/D|\(D \(": "D is the number of coordinates of an embedding",
    r"\(H\)": "H has the rows h_i, and H' has the rows h'_i",
    r"\balso A\b": "A is the matrix I - (1 - nu) diag C; with `diagonal=False`, A is I",
    r"\bdiag C": "I is the identity matrix, C is sum_i h_i h'_i^T / N, and diag C is C without its "
    "off-diagonal elements",
    r"\b(max|min)_k ": "k is a negative of anchor i",
    "GD_i = d_i": "d_i is the number GD_i, given under Gradient",
    "W_ij = w_ij": "w_ij is the number W_ij, given under Gradient",
    "p_ij and p_i, which": "p_ij and p_i are values of a softmax, given under Gradient",
    r"\bdirections\b": "The loss has two directions: in one, the anchors are the first view; in "
    "the other, the anchors are the second view",
    r"\b1\[": "1[...] is 1 if the condition in brackets holds, and 0 if not",
}
"""The letters of the formulas that are not settings, and what they mean."""

_SCORED = {
    False: "before, during and after training. `{folder}/model` is the model with the best score. "
    "If training never raised the score, this is the original model.",
    True: "before and after training. `{folder}/model` is the trained model, or the original model "
    "if the trained one is clearly worse.",
}
"""What is scored and saved, without and with the settings of ``--recipe auto``."""

_GREY = {
    "": "If the right panel has a grey area, R is not defined there.",
    "matrix": "The right panel is empty: there is no single R, because the positive pulls each "
    "coordinate with a different strength.",
    "only pull": "The right panel is empty: R is not defined, because no negative pushes.",
}
"""What the right panel of a picture does not show, for each kind of ratio."""

_HEADS = (
    "Loss", "Gradient", "Shapes", "Reference",
    "Pairs of views", "Heads", "Target update", "Recipe", "Ours",
)  # fmt: skip
"""The headings with which a paragraph of the docstring of an objective or method may begin."""

_TITLES = {"Ours": "Where we differ from the paper"}
"""The headings that a page prints in other words."""

_CALLED = {
    logits: f"The objective takes two tensors with one {row} in each row: {first}, and {second} in "
    "the same order. It returns the loss. [Use it in your own training loop](../guide/pytorch.md)."
    for logits, row, first, second in (
        (False, "embedding", "the anchors", "their positives"),
        (True, "vector of logits", "the student's vectors", "the teacher's vectors"),
    )
}
"""What an objective takes and returns."""


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
    components = ["dissipation GD", "weight W", "ratio R"]
    header = ["objective", *components, "paper", "equations and tables", "settings and defaults"]
    lines = [
        [f"[{cls.__name__}]({name}.md)", *cells]
        for name, cells in rows(names).items()
        for cls in [Objective.registered[name]]
    ]
    values = [
        ["dissipation GD", "`1`", "GD is always 1: an anchor never stops learning"],
        [
            "dissipation GD",
            "`1 or 0`",
            "GD is 1 until the positive is closer to the anchor than all negatives by a margin. "
            "Then GD is 0, and the anchor stops learning",
        ],
        [
            "dissipation GD",
            "`1 to 0`",
            "GD falls gradually; it is near 0 if the positive is much closer to the anchor than "
            "the negatives",
        ],
        ["weight W", "`hardest`", "only the most similar negative pushes the anchor"],
        ["weight W", "`all`", "all negatives push the anchor"],
        ["weight W", "`signed`", "some negatives push the anchor, others pull it"],
        ["weight W", "`none`", "no negative pushes the anchor"],
        ["ratio R", "a number", "R is always this number"],
        ["ratio R", "`dynamic`", "R depends on the angles between embeddings"],
        [
            "ratio R",
            "`matrix`",
            "there is no single R, because the pull is different in each coordinate",
        ],
        ["ratio R", "`only pull`", "R is not defined, because no negative pushes the anchor"],
        [
            "all three",
            "`-`",
            "GD, W and R are not defined, because the loss does not compare embeddings",
        ],
    ]
    return (
        "# Objectives\n\n"
        "Use this page to find a loss by its gradient. To choose a loss by its scores, read "
        "[Choose an objective](../guide/choose.md). The page of each objective has the command "
        f"that trains with it.\n\n{legend('', everything=True)} GD, W and R together give the "
        "gradient on anchor i: GD_i · Σ_j W_ij (x_j − R_i h'_i), where the x_j are the negatives "
        "and h'_i is the positive ([notation](../notation.md)).\n\nThe first table explains the "
        "words for GD, W and R in the second table. `Paradigm` is an objective whose GD, W and R "
        "you choose; the table shows its defaults.\n\n"
        + grid(["component", "word", "meaning"], values)
        + "\n"
        + grid(header, lines)
    )


def page(cls: type[Objective]) -> str:
    """Return the page of one objective in Markdown."""
    sentence, *paragraphs = (inspect.getdoc(cls) or "").split("\n\n")
    objective = cls()
    train = _command(cls)
    blocks = [f"# {cls.__name__}", escaped(sentence)]
    letters = _letters(objective, "\n\n".join(paragraphs))
    if cls.name in FORMULAS:  # a new objective is one file: its page needs nothing beside it
        blocks += [f"$$\n{FORMULAS[cls.name]}\n$$"]
    blocks += filter(None, [letters])
    blocks += ["[Notation](../notation.md) · [choose an objective](../guide/choose.md)"]
    blocks += ["## When to use it", *([USES[cls.name]] if cls.name in USES else [])]
    blocks += ["\n".join(f"- {one}" for one in _limits(objective))]
    blocks += ["## Train with it", f"```console\n{train}\n```", left(train)]
    examples = [text for text in paragraphs if text.startswith("Example:")]
    for example in examples:
        blocks += ["## In Python", *_example(cls, example)]
        blocks += [_CALLED[objective.space == "logits"]]
    blocks += ["## Settings", settings(cls), *_how_to_set(cls)]
    if cls.presets:
        blocks += ["## Presets", _presets(cls)]
    blocks += ["## The gradient"]
    if objective.has_terms:
        blocks += [
            legend("", everything=True),
            f"![gradient dissipation, weight and ratio of {cls.__name__}]({cls.name}.svg)",
            "The picture shows one anchor with 31 negatives, at the default settings: GD on the "
            "left, W in the middle, R on the right. θ\\_ii' is the angle between the anchor and "
            "its positive, and θ\\_ij' is the angle between the anchor and a negative. In the left "
            "and the right panel, the horizontal axis has the mean of the 31 angles θ\\_ij'; their "
            "standard deviation is 0.1 radians. In the middle panel, each dot is a negative, and "
            f"θ\\_ii' is π/6. {_GREY.get(summary(objective)['ratio'], _GREY[''])} For the "
            "picture, the positive and the 31 negatives are orthogonal to one another, apart from "
            "their part along the anchor, and the two embeddings of each negative's pair are "
            "equal.",
        ]
    blocks += [paragraph(text) for text in paragraphs if text not in examples]
    blocks += ["## Properties", _declared(objective), "## Source"]
    blocks += [source(cls.paper)]
    return "\n\n".join(blocks) + "\n"


def _letters(objective: Objective, text: str) -> str:
    """Return a list that explains the letters of the formulas; those of settings come last."""
    fields = hypers(type(objective))
    symbols = {
        hyper.symbol: f"`{field}`"
        for field, hyper in fields.items()
        if hyper.symbol and not isinstance(getattr(objective, field), bool)
    }
    found = [
        meaning
        for letter, meaning in _LETTERS.items()
        if objective.space != "logits" and re.search(letter, text)
    ]
    if symbols:
        listed = "; ".join(f"{symbol} is {field}" for symbol, field in symbols.items())
        found.append(listed.replace(" is ", " is the setting ", 1))
    if not found:
        return ""
    unit = "have length 1" + " with the default `space`" * ("space" in fields)
    near = "h_j its nearest neighbour" in " ".join(text.split())
    other = escaped(
        "h_j is the row of the anchors' view that is nearest to h_i, and h'_j is its positive"
        if near
        else "h_j and h'_j are another pair of the batch"
    )
    twice = objective.two_directions and not re.search(r"\bdirections\b", text)
    exchanged = "; the loss also contains the formulas with the two views exchanged" * twice
    filled = {"unit": unit, "exchanged": exchanged, "other": other}
    return "Letters of the formulas:\n\n" + "\n".join(
        f"- {escaped(one.replace('`', '``')).format_map(filled)}." for one in found
    )


def source(paper: Paper) -> str:
    """Return a list of a paper's title and authors, and of the equations that the code follows."""
    return f"- Paper: {paper.title} ({paper.reference}).\n- The code follows {paper.equation}."


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
        return "There are no settings."
    lines = [
        [f"`{prefix}{field}`", hyper.symbol, shown(getattr(cls, field)), hyper.bounds, hyper.help]
        for field, hyper in fields.items()
    ]
    return grid(["setting", "symbol", "default", "allowed", "meaning"], lines)


def _how_to_set(cls: type[Objective]) -> list[str]:
    """Return a sentence on how to set a hyperparameter; nothing if there are none."""
    for field in hypers(cls):
        value = getattr(cls, field)
        written = f'"{value}"' if isinstance(value, str) else shown(value)
        return [
            f"To set a value, write, for example, `--objective.{field} {shown(value)}` in the "
            f"command, or `{cls.__name__}({field}={written})` in Python."
        ]
    return []


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
    first = next(iter(cls.presets))
    text = (
        "A preset has the values that the authors of a paper found best for one encoder. "
        f"`--objective.preset {first}` sets the values in the row `{first}`, except the learning "
        "rate and the batch size: set these with `--learning-rate` and `--batch-size`."
    )
    sources = " ".join(preset.source for preset in cls.presets.values())
    for field, value in dict.fromkeys(re.findall(r"\(with (\w+)=(\w+)\)", sources)):
        text += (
            f" To train as the authors did, also add `--objective.{field} {value}`, which no "
            "preset sets."
        )
    table = grid(["preset", "values", "learning rate", "batch size", "source of the values"], lines)
    return f"{text}\n\n{table}"


def left(command: str) -> str:
    """Return sentences on what a training command prints and writes."""
    found = re.search(r"isotrope (train\S*) (\S+) .*--output (\S+)", command)
    assert found is not None, command
    encoder = re.search(r"--encoder (\S+)", command)
    return _LEFT[found[1]].format(
        data=found[2],
        folder=found[3],
        encoder="all-MiniLM-L6-v2" if encoder is None else encoder[1],
        scored=_SCORED["--objective ntxent" in command].format(folder=found[3]),
    )


def _limits(objective: Objective) -> list[str]:
    """Return sentences on what to watch for and on what the objective cannot do."""
    fades = summary(objective)["dissipation"]
    default = " with the default components" if objective.name == "paradigm" else ""
    limits = [_FADES[fades].format(default=default)] if fades in _FADES else []
    if objective.holds == "everything":
        limits.append(
            "Ignore the value of the loss. The loss is a surrogate: it was built to have a chosen "
            "gradient, and its value has no meaning."
        )
    if not objective.takes_negatives:
        text = "hard negatives (a third text on each line of the file)"
        images = _command(type(objective)).startswith("isotrope train-images")
        limits.append(
            f"The objective does not accept {'additional negatives' if images else text}."
        )
    if not objective.pairwise and summary(objective)["weight"] not in ("none", "-"):
        limits.append("The objective ignores `--groups`: it also pushes apart inputs of one group.")
    return limits


def _declared(objective: Objective) -> str:
    both = "both views; the positives of each view are the rows of the other view"
    varied = {"space", "variant"} & set(hypers(type(objective)))
    usual = ", with the default settings" * bool(varied)
    value = (
        "one number for the whole batch; an anchor has no loss of its own"
        if objective.batch_level
        else 'with `variant="paper"`, ' * _released(objective)
        + f"the {objective.reduction} of the losses of the anchors"
    )
    mean = (
        f"`{type(objective).__name__}().symmetric()` is the mean of two losses: one with the first "
        "view as anchors, and one with the second view as anchors"
    )
    grouped = (
        "rows with the same value in the argument `groups` are not negatives of each other"
        if objective.pairwise
        else "the argument `groups` has no effect"
    )
    anchors = both if objective.two_directions else f"the first view. {mean}"
    if _released(objective) and not objective.two_directions:
        other = dataclasses.replace(objective, variant="released")
        if other.two_directions:
            anchors = (
                f'the first view with `variant="paper"`; both views with `variant="released"` (the '
                "positives of each view are the rows of the other view). With the default "
                f"settings, {mean}"
            )
        else:
            anchors = (
                'the first view with `variant="paper"`; the second view with '
                f'`variant="released"`. {mean}'
            )
    lines = [
        f"- Input: {_input(objective)}.",
        f"- Value: {value}.",
        f"- Anchors: {anchors}.",
        f"- Additional negatives (hard negatives or a queue): {_accepted(objective)}.",
        f"- Groups: {grouped}.",
        f"- Stop-gradient: {_held(objective)}.",
        f"- Changes that leave the loss the same{usual}: "
        f"{', '.join(_INVARIANCES.get(one, one) for one in sorted(objective.invariances))}.",
    ]
    return "The tests of isotrope check these properties.\n\n" + "\n".join(lines)


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
    return "; ".join(
        ("" if space is None else f'with `space="{one}"`, ') + _SPACES[str(one)] for one in spaces
    )


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
