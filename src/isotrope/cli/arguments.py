"""Turning settings into flags and back: what the verbs share."""

import argparse
import types
import typing
from collections.abc import Sequence
from typing import Any, NoReturn

from isotrope.core.errors import InputError

__all__ = ["Parser", "add_fields", "dotted"]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage.

        Raises:
            InputError: always.
        """
        raise InputError(f"{message} (see `{self.prog} --help`)")


def add_fields(parser: argparse.ArgumentParser, fields: dict[str, Any], *, skip: set[str]) -> None:
    """Add a flag for every pydantic field, absent when not given; values stay strings."""
    for name, field in fields.items():
        if name in skip:
            continue
        option = "--" + name.replace("_", "-")
        default = field.get_default(call_default_factory=True)
        shown = "" if field.is_required() or default in (None, "", []) else f" [{default}]"
        help_text = f"{field.description}{shown}".replace("%", "%%")
        kind = field.annotation
        if kind is bool:
            parser.add_argument(
                option,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=help_text,
            )
            continue
        many = typing.get_origin(kind) is list
        if many and typing.get_args(kind) == (int,):
            parser.add_argument(
                option,
                default=argparse.SUPPRESS,
                metavar="N",
                nargs="+",
                action="extend",
                help=help_text,
            )
            continue
        parser.add_argument(
            option,
            default=argparse.SUPPRESS,
            metavar=_metavar(kind),
            action="append" if many else "store",
            help=help_text,
        )


def _metavar(kind: Any) -> str:  # noqa: ANN401 - an annotation
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(typing.get_args(kind))
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return _metavar(next(a for a in typing.get_args(kind) if a is not type(None)))
    if typing.get_origin(kind) is list:
        return "NAME"
    return {int: "N", float: "X"}.get(kind, "NAME")


def dotted(rest: Sequence[str], prefix: str) -> tuple[dict[str, str], list[str]]:
    """Split ``--objective.temperature 0.05`` (or ``=0.05``) from the other arguments.

    Raises:
        InputError: a dotted flag without a value.
    """
    found: dict[str, str] = {}
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
            raise InputError(f"--{name} needs a value, e.g. --{name} 0.05")
        found[name] = value
    return found, others
