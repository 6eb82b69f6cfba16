"""Converts settings to flags and back, for every command."""

import argparse
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError
from isotrope.core.files import from_home
from isotrope.core.setting_aliases import ACCEPTED, intended_name
from isotrope.paradigm.declared import PARTS

__all__ = ["Parser", "add_fields", "check_readable", "dotted"]


def check_readable(*files: Path | None) -> None:
    """Refuse a path that cannot be read: before anything is imported that takes seconds.

    Raises:
        InputError: nothing is there, or neither a file nor a folder.
    """
    for file in files:
        if file is not None and str(file) != "-" and not file.is_dir():
            check_file(file)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: one line, exit code 2.

    Attributes:
        dotted: returns the flags with a dot that there are, which it does not parse itself.
    """

    dotted: Callable[[], list[str]] = staticmethod(list)

    def parse_args(  # type: ignore[override] # of its two forms this is the one that is used
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse all; a flag that is not known names the one that was probably meant."""
        # intermixed: a query may come after a flag
        options, rest = self.parse_known_intermixed_args(args, namespace)
        if rest:
            wrong = next((word for word in rest if word.startswith("--")), "")
            flags = [option[2:] for option in self._option_string_actions if option[:2] == "--"]
            name = (
                intended_name(wrong[2:].partition("=")[0], [*flags, *self.dotted()])
                if wrong
                else None
            )
            hint = "" if name is None else f" (did you mean --{name}?)"
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        for name, value in vars(options).items():
            if isinstance(value, Path):  # a shell leaves --output=~/x as it is
                setattr(options, name, Path(from_home(str(value))))
        return options

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage.

        Raises:
            InputError: always.
        """
        raise InputError(f"{message} (see `{self.prog} --help`)")


_GROUPS = {
    "data": "files streaming sampling columns groups views query_prompt passage_prompt max_length "
    "holdout data classes limit image_size augment pixels workers",
    "model": "encoder pooling head freeze dropout matryoshka lora lora_alpha lora_targets width "
    "stem cut cut_what",
    "objective and method": "objective method plugin backend",
    "optimisation": "batch_size micro_batch epochs max_steps learning_rate weight_decay clip "
    "warmup warmup_epochs scheduler optimizer gradient_checkpointing",
    "evaluation and logging": "dev eval_every patience knn_every knn_images linear log_every "
    "logger progress",
    "hardware": "precision device devices",
    "run": "output seed checkpoint_every keep_every",
}
"""The title under which the help of a training shows each flag; a new setting needs one."""


def add_fields(
    parser: argparse.ArgumentParser, fields: dict[str, Any], *, skip: set[str], title: str = ""
) -> None:
    """Add a flag for every pydantic field, absent when not given; values stay strings.

    Args:
        parser: gets them.
        fields: by name.
        skip: those that are left out.
        title: of the one group that all are in; empty: each is in its own.
    """
    home = {name: title for title, names in _GROUPS.items() for name in names.split()}
    home = dict.fromkeys(fields, title) if title else home
    groups = {name: parser.add_argument_group(name) for name in ([title] if title else _GROUPS)}
    for name, field in fields.items():
        if name in skip:
            continue
        add = groups[home[name]].add_argument
        option = "--" + name.replace("_", "-")
        aliases = [f"--{ACCEPTED[option[2:]]}"] if option[2:] in ACCEPTED else []
        default = field.get_default(call_default_factory=True)
        listed = " ".join(default) if isinstance(default, list) else default
        shown = "" if field.is_required() or default in (None, "", []) else f" [{listed}]"
        help_text = f"{field.description}{shown}".replace("%", "%%")
        kind = field.annotation
        if kind is bool:
            add(
                option,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=help_text,
            )
            continue
        many = typing.get_origin(kind) is list
        (item,) = typing.get_args(kind) if many else (None,)
        if item is int or typing.get_origin(item) is typing.Literal:
            add(
                option,
                default=argparse.SUPPRESS,
                metavar="N" if item is int else "|".join(typing.get_args(item)),
                nargs="*" if default else "+",  # without a value: the empty list
                action="extend",
                help=help_text,
            )
            continue
        add(
            option,
            *aliases,
            dest=name,
            default=argparse.SUPPRESS,
            metavar="TEXT" if name.endswith("prompt") else _metavar(kind),
            action="append" if many else "store",
            help=help_text,
        )


def _metavar(kind: object) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(typing.get_args(kind))
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return _metavar(next(a for a in typing.get_args(kind) if a is not type(None)))
    if typing.get_origin(kind) is list:
        return "NAME"
    if kind is int:
        return "N"
    return "X" if kind is float else "NAME"


def dotted(rest: Sequence[str], prefix: str) -> tuple[dict[str, str], list[str]]:
    """Split ``--objective.temperature 0.05`` (or ``=0.05``) from the other arguments.

    Raises:
        InputError: a dotted flag without a value.
    """
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
