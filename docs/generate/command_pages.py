"""One page for each verb, written from its own parser, and what the verb prints.

Outputs are files in docs/generate/outputs, copied from a terminal; their first line is the command.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docs.generate.objective_pages import grid
from isotrope.cli.command import load
from isotrope.cli.main import VERBS
from isotrope.core.files import atomic_replace

OUTPUTS = Path(__file__).with_name("outputs")


def write_command_pages(directory: Path) -> list[Path]:
    """Write ``README.md`` and, for each verb, ``VERB.md``.

    Args:
        directory: made if it is not there; other files in it stay.

    Returns:
        What was written.
    """
    texts = {"README.md": _index(), **{f"{verb}.md": command_page(verb) for verb in VERBS}}
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        with atomic_replace(directory / file) as partial:
            partial.write_text(text, encoding="utf-8")
    return [directory / file for file in texts]


def command_page(verb: str) -> str:
    """Return the page of one verb in Markdown."""
    blocks = [*_blocks(load(verb).parser()), *_output(verb)]
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def _output(verb: str) -> list[str]:
    """A command and what it printed, if there is a copy of it."""
    file = OUTPUTS / f"{verb}.txt"
    if not file.is_file():
        return []
    command, printed = file.read_text(encoding="utf-8").split("\n\n", 1)
    return ["## Output", f"```console\n{command}\n```", f"```text\n{printed}```"]


def _index() -> str:
    lines = [[f"[`{verb}`]({verb}.md)", line] for verb, line in VERBS.items()]
    return "# Commands\n\n`isotrope VERB --help` prints the same as these pages.\n\n" + grid(
        ["verb", "what it does"], lines
    )


def _blocks(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"# {parser.prog}"
    if parser.usage:
        yield _fenced("text", [line.strip() for line in parser.usage.splitlines()])
    yield from _text(parser.description or "")
    yield from _groups(parser)
    yield from _text(parser.epilog or "")


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What the verb takes, by the groups of its help."""
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
    """What stands before or behind the options: examples, tables as they are, the rest as prose."""
    for paragraph in filter(str.strip, re.split(r"\n\s*\n", text)):
        first, *rest = paragraph.strip("\n").splitlines()
        if first.endswith(":") and rest and all(line.startswith("  ") for line in rest):
            is_examples = first.rstrip(":") == "examples"
            yield "## Examples" if is_examples else _prose(first)
            yield _fenced("console" if is_examples else "text", rest)
        elif any(line.startswith("  ") for line in (first, *rest)):
            yield _fenced("text", [first, *rest])
        else:
            yield _prose(paragraph)


def _fenced(language: str, lines: Sequence[str]) -> str:
    inner = "\n".join(line.removeprefix("  ") for line in lines)
    return f"```{language}\n{inner}\n```"


def _prose(text: str) -> str:
    """Return Markdown: nothing is emphasis; code, in backticks, stays as it is."""
    pieces = " ".join(text.split()).split("`")
    pieces[::2] = [re.sub(r"([*<|_])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)
