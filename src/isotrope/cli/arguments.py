"""Converts settings to flags and back, for every command."""

import argparse
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError
from isotrope.core.spelling import ACCEPTED, intended_name
from isotrope.paradigm.declared import PARTS

if TYPE_CHECKING:  # `isotrope --help` needs no package
    from _typeshed import SupportsWrite
    from pydantic.fields import FieldInfo


def check_readable(*files: Path | None) -> None:
    """Refuse a path that cannot be read. Commands call this before slow imports."""
    for file in files:
        if file is not None and str(file) != "-" and not file.is_dir():
            check_file(file)


class _Word(str):
    """Text of an argument that is not a flag, even if it begins with a dash."""

    __slots__ = ()


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line, with exit code 2.

    Attributes:
        dotted: Function that returns more names of flags to suggest for an unknown flag.
    """

    dotted: Callable[[], list[str]] = staticmethod(list)

    def parse_args(  # type: ignore[override] # of its two forms this is the one that is used
        self, args: Sequence[str]
    ) -> argparse.Namespace:
        """Parse all arguments; for an unknown flag, name the flag that was probably meant."""
        words = list(args)
        if "--" in words:  # intermixed parsing loses the words after it
            end = words.index("--")
            words = [*words[:end], *map(_Word, words[end + 1 :])]
        # intermixed: a query may come after a flag
        options, rest = self.parse_known_intermixed_args(words)
        if rest:
            wrong = next((word[2:].partition("=")[0] for word in rest if word[:2] == "--"), "")
            flags = [option[2:] for option in self._option_string_actions if option[:2] == "--"]
            name = intended_name(wrong, [*flags, *self.dotted()]) if wrong else ""
            hint = f" (did you mean --{name}?)" if name else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return options

    def _parse_optional(
        self, arg_string: str
    ) -> tuple[argparse.Action | None, str, str | None] | None:
        """Parse a word after ``--`` as a word, even if it looks like a flag."""
        return None if isinstance(arg_string, _Word) else super()._parse_optional(arg_string)

    def error(self, message: str) -> NoReturn:
        """Raise an InputError instead of printing the usage."""
        raise InputError(f"{message} (see `{self.prog} --help`)")

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """Print help or a version. Unlike argparse, raise an error if the disk is full."""
        (file or sys.stdout).write(message)


def add_fields(
    parser: argparse.ArgumentParser, fields: Mapping[str, "FieldInfo"], *, both_ways: bool = False
) -> None:
    """Add a flag or a positional argument for each field. Parsed values are text.

    Args:
        parser: Parser that receives the arguments.
        fields: A dict from name to field.
        both_ways: Whether a boolean flag ``--NAME`` gets a flag ``--no-NAME``, to override a file.
    """
    from isotrope.core.settings import BY_RECIPE, extra_of

    groups: dict[str, Any] = {"": parser}
    for name, field in fields.items():
        extra = extra_of(field)
        title = extra.get("group", "")
        if title not in groups:  # the help lists groups in the order of their first field
            groups[title] = parser.add_argument_group(title)
        described = _help(field, extra, is_auto=BY_RECIPE in field.metadata)
        common = {"default": argparse.SUPPRESS, "help": described}
        if extra.get("positional"):
            parser.add_argument(name, **common | _position(field, extra))
            continue
        flag = extra.get("name") or "--" + name.replace("_", "-")
        flags = [extra["short"], flag] if "short" in extra else [flag]
        if both_ways and flag[2:] in ACCEPTED:
            flags.append(f"--{ACCEPTED[flag[2:]]}")
        action = _action(field, extra, both_ways=both_ways)
        groups[title].add_argument(*flags, dest=name, **common | action)


def _position(field: "FieldInfo", extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return how argparse reads a positional argument."""
    kind = typing.get_origin(field.annotation)
    choices = typing.get_args(field.annotation) if kind is typing.Literal else None
    nargs = "*" if kind is list else "?"
    return {"default": None, "nargs": nargs, "metavar": extra["metavar"], "choices": choices}


def _action(field: "FieldInfo", extra: Mapping[str, Any], *, both_ways: bool) -> dict[str, Any]:
    """Return how argparse reads the values of a flag."""
    if field.annotation is bool:
        return {"action": argparse.BooleanOptionalAction if both_ways else "store_true"}
    metavar = extra.get("metavar") or _metavar(field.annotation)
    if typing.get_origin(field.annotation) is not list:
        return {"metavar": metavar}
    (item,) = typing.get_args(field.annotation)
    if extra.get("many") or item is int or typing.get_origin(item) is typing.Literal:
        # without a value, the list is empty: needed if the default or a file has values
        is_filled = bool(field.get_default(call_default_factory=True))
        nargs = "*" if is_filled and both_ways else "+"
        return {"action": "extend", "nargs": nargs, "metavar": metavar}
    return {"action": "append", "metavar": metavar}


def _help(field: "FieldInfo", extra: Mapping[str, Any], *, is_auto: bool) -> str:
    """Return the description of a field with its default in brackets."""
    default = field.get_default(call_default_factory=True)
    shown = extra.get("shown") or ""
    is_shown = not field.is_required() and default is not False and default not in (None, "", [])
    if not shown and is_shown:
        shown = " ".join(map(str, default)) if isinstance(default, list) else str(default)
    if is_auto:
        shown = "chosen by --recipe auto" + (shown and f"; papers: {shown}")
    text = field.description or ""
    if shown:
        text = f"{text.removesuffix('.')} [{shown}]{'.' * text.endswith('.')}"
    return text.replace("%", "%%")


def _metavar(kind: object) -> str:
    parts = [part for part in typing.get_args(kind) if part is not type(None)]
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(parts)
    if parts:  # a list, or a value that may be None
        return _metavar(parts[0])
    by_kind: dict[object, str] = {int: "N", float: "X", Path: "FILE"}
    return by_kind.get(kind, "NAME")


def dotted(rest: Sequence[str], prefix: str) -> tuple[dict[str, str], list[str]]:
    """Return a dict from PREFIX.NAME to the value of this flag, and a list of other arguments."""
    values: dict[str, str] = {}
    others: list[str] = []
    waiting = iter(rest)
    for argument in waiting:
        if not argument.startswith(f"--{prefix}."):
            others.append(argument)
            continue
        name, equals, value = argument[2:].partition("=")
        if not equals:
            value = next(waiting, "--")
        if value.startswith("--") or not value:
            example = PARTS.get(name.removeprefix("objective."))
            shown = f", e.g. --{name} {example}" if example else ""
            raise InputError(f"--{name} needs a value{shown}")
        values[name] = value
    return values, others
