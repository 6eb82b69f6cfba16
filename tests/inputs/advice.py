"""What a message proposes: the flags and commands in it, and whether its verb takes them."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import isotrope
from isotrope.cli.command import load
from isotrope.cli.main import VERBS

FLAG = re.compile(r"(?<![\w`'/.-])`?(--[a-z][a-z.-]*[a-z])(?![\w])")
COMMAND = re.compile(rf"isotrope ({'|'.join(sorted(VERBS, reverse=True))})\b([^`\n;]*)")


@cache
def flags_of(verb: str) -> frozenset[str]:
    """Return the flags of a verb, and how those with a dot begin."""
    command = load(verb)
    own = {"--help", "--objective."} | {f"--{prefix}." for prefix in command.settings.dotted}
    return frozenset(command.parser()._option_string_actions) | own


def takes(verb: str, flag: str) -> bool:
    """Return whether a verb takes a flag; a sweep takes those of what it repeats."""
    known = flags_of(verb)
    if verb == "sweep":
        known |= flags_of("train") | flags_of("train-images")
    return flag in known or f"{flag.partition('.')[0]}." in known or f"--no-{flag[2:]}" in known


def not_taken(arguments: Sequence[str], message: str) -> list[str]:
    """Return the flags that a message proposes, and that neither its verb nor a command takes.

    Args:
        arguments: What was typed; flags in it may be named whatever they are.
        message: What was said.
    """
    verb, wrong = arguments[0] if arguments else "", []
    for command in COMMAND.finditer(message):
        wrong += [flag for flag in FLAG.findall(command[2]) if not takes(command[1], flag)]
    own = FLAG.findall(COMMAND.sub("", message))
    typed = {word.partition("=")[0] for word in arguments}
    return wrong + [f for f in own if verb in VERBS and f not in typed and not takes(verb, f)]


def written() -> Iterator[tuple[str, str]]:
    """Yield every text of the source that is no docstring: its file and line, and the text."""
    root = Path(isotrope.__file__).parent
    for file in sorted(root.rglob("*.py")):
        tree = ast.parse(file.read_text())
        nodes = list(ast.walk(tree))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        left_out = {id(n.body[0].value) for n in nodes if isinstance(n, documented) and _first(n)}
        left_out |= {id(v) for n in nodes if isinstance(n, ast.JoinedStr) for v in n.values}
        for node in nodes:
            where = f"{file.relative_to(root)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                parts = (v.value if isinstance(v, ast.Constant) else "X" for v in node.values)
                yield where, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and id(node) not in left_out:
                yield where, node.value if isinstance(node.value, str) else ""


def _first(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    return bool(node.body) and isinstance(node.body[0], ast.Expr)
