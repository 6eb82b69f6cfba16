"""Writes one page for each command: its options, from its parser, and an example of its output.

The examples are files in docs/generate/outputs, copied from a terminal. Their first line is the
command. A page has a short output before the options, and a long one at the end.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from docs.generate.legend import legend
from docs.generate.objective_pages import grid
from isotrope.cli.command import load
from isotrope.cli.main import VERBS
from isotrope.core.files import write_text

OUTPUTS = Path(__file__).with_name("outputs")
_SHORT = 30  # lines of an output that is printed before the options

RESULTS = {
    "train": "prints the settings, the scores during training, and whether training improved "
    "the model. `--output` receives `model/` (an ordinary sentence-transformers folder), "
    "`metrics.csv` (a row for each logged step), `config.yaml` (the settings) and `result.json` "
    "(the scores). The command trains bi-encoders only. For rerankers or sparse encoders, use "
    "another library ([comparison](../guide/compare.md)).",
    "train-images": "prints the settings and the loss. If the images have labels and a test "
    "split, it also prints the accuracy of nearest neighbours. `--output` receives `model/`, "
    "`metrics.csv` (a row for each logged step), `config.yaml` (the settings) and `result.json` "
    "(the scores). To train a text encoder, use [`train`](train.md).",
    "evaluate": "prints a table of scores out of 100. With `--compare`, it also prints the "
    "differences from the first model, each with an interval. Name the data with at least one of "
    "the options under [Data to score on](#data-to-score-on-in-any-combination). Without data, the "
    "command lists these options and ends with exit code 2. To find out why a training failed, use "
    "[`diagnose`](diagnose.md).",
    "encode": "writes one `.npy` file with a float32 row for each text or picture, and prints "
    "the shape of the matrix. To find the texts that are nearest to a query, use "
    "[`search`](search.md).",
    "search": "prints the nearest texts for each query, and the cosine and line (or id) of each "
    "text. It encodes the whole file for each call. To search the same file often, encode it once "
    "with [`encode`](encode.md) and give the matrix with `--embeddings`.",
    "objectives": "prints a line for each objective (loss), and the components of the gradient "
    "that you can put into an objective. With a name, it prints the objective's formula, gradient, "
    "settings and presets (values that a paper tuned). It writes no file.",
    "check": "prints a line for each comparison, with the result `ok`, `WRONG` or `-`. A dash is "
    "no certain fault: a line below the table says what was found, and when to change it. If a "
    "line is `WRONG`, the exit code is 1. The command writes no file, and does not show whether "
    "the loss trains a good model.",
    "simulate": "writes a picture (`.png`, `.svg`) and the plotted numbers (`.csv`) to `--output`, "
    "and prints a table with a row for each objective. It uses no data. To see what an "
    "objective does to your texts, use [`audit`](audit.md).",
    "audit": "prints recommended settings and rows that look wrong. It lists likely false "
    "negatives: texts that belong together, but that a training would push apart. It also prints "
    "whether whitening raises the score of the encoder. With `--output`, it writes an HTML page, "
    "and for texts also cleaned files to train on. The command trains nothing. To judge a "
    "training, use [`diagnose`](diagnose.md).",
    "diagnose": "prints a verdict, the numbers behind it, and one setting to change. If it "
    "diagnoses a run, it also writes `diagnosis.json` to the run's folder. The page of a "
    "[verdict](../diagnosis.md) says when to ignore this verdict. To find out whether one "
    "model is better than another, use [`evaluate --compare`](evaluate.md).",
    "sweep": "trains every trial (one combination of values) with three seeds. It prints a table "
    "of the trials' scores (mean ± standard deviation over the seeds), and the command that "
    "trains the best trial. `--output` receives the table and a run folder for each training. "
    "With `--dry-run`, it only prints the trainings that it would run. To compare runs that you "
    "already have, use [`report`](report.md).",
    "report": "writes one HTML file with the charts, scores and verdicts of the runs, and prints "
    "the path of the file. To find out whether a difference in score is more than noise, use "
    "[`evaluate --compare`](evaluate.md).",
}
"""What each command prints and writes, and when to use another."""


def write_command_pages(directory: Path) -> list[Path]:
    """Write ``README.md`` and, for each command, ``VERB.md``.

    Args:
        directory: Folder to write to. It is created if necessary; other files in it are kept.

    Returns:
        The paths of the files.
    """
    texts = {"README.md": _index(), **{f"{verb}.md": command_page(verb) for verb in VERBS}}
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        write_text(directory / file, text)
    return [directory / file for file in texts]


def command_page(verb: str) -> str:
    """Return the page of one command in Markdown."""
    parser = load(verb).parser()
    command, printed = (OUTPUTS / f"{verb}.txt").read_text(encoding="utf-8").split("\n\n", 1)
    output = ["## Output", f"```console\n{command}\n```", f"```text\n{printed}```"]
    options = [*_groups(parser), *_text(parser.epilog or "")]
    head = [*_head(parser), f"The command {RESULTS[verb]}"]
    short = printed.count("\n") <= _SHORT
    body = [*output, *options] if short else [*options, *output]
    letters = legend("\n\n".join([*head, *body]))
    blocks = [*head, *filter(None, [letters]), *body]
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def _index() -> str:
    lines = [[f"[`{verb}`]({verb}.md)", line] for verb, line in VERBS.items()]
    return (
        "# Commands\n\nChoose a command by what you want to do. The page of a command lists its "
        "options and has an example of its output. `isotrope COMMAND --help` prints the options "
        "as well.\n\n" + grid(["command", "what it does"], lines)
    )


def _head(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The title, the usage and the description."""
    yield f"# {parser.prog}"
    if parser.usage:
        yield _fenced("text", [line.strip() for line in parser.usage.splitlines()])
    yield from _text(parser.description or "")


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The arguments and flags of the command, by the groups of its help."""
    for group in parser._action_groups:
        actions = [a for a in group._group_actions if a.help != argparse.SUPPRESS]
        lines = [[_name(a), _meaning(a, parser)] for a in actions if not _is_help(a)]
        if lines:
            yield f"## {(group.title or '').capitalize()}"
            yield grid([" ", "meaning"], lines)


def _is_help(action: argparse.Action) -> bool:
    return "--help" in action.option_strings


def _name(action: argparse.Action) -> str:
    """The flags with what they take, or the name of an argument."""
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    takes = "" if action.nargs == 0 else f" {_takes(action)}"
    return ", ".join(f"`{flag}{takes}`" for flag in action.option_strings)


def _takes(action: argparse.Action) -> str:
    named: Any = action.metavar
    if named is None:
        named = "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    return f"{named} ..." if action.nargs in ("+", "*") else str(named)


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    # as argparse itself fills in %(default)s and the like
    return _prose((action.help or "") % {**vars(action), "prog": parser.prog})


def _text(text: str) -> Iterator[str]:
    """The text around the options: examples and tables in fences, the rest as prose."""
    for paragraph in filter(str.strip, re.split(r"\n\s*\n", text)):
        is_examples = False
        for indented, run in groupby(paragraph.strip("\n").splitlines(), _is_indented):
            lines = list(run)
            if indented:
                yield _fenced("console" if is_examples else "text", lines)
            else:
                is_examples = lines == ["examples:"]
                yield "## Examples" if is_examples else _prose(" ".join(lines))


def _is_indented(line: str) -> bool:
    return line.startswith("  ")


def _fenced(language: str, lines: Sequence[str]) -> str:
    inner = "\n".join(line.removeprefix("  ") for line in lines)
    return f"```{language}\n{inner}\n```"


def _prose(text: str) -> str:
    """Return Markdown: nothing is emphasis; code, in backticks, stays as it is."""
    pieces = " ".join(text.split()).split("`")
    pieces[::2] = [re.sub(r"([*<|_])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)
