"""Completes verbs, flags and values in a shell, by shtab from the parsers of all verbs."""

import argparse
import importlib
from typing import Any
from unittest import mock

from isotrope.cli.arguments import Parser
from isotrope.core.errors import MissingExtra
from isotrope.paradigm.declared import declared

__all__ = ["completion", "parser_of"]


class _HelpRequested(Exception):
    """A parser was asked for its help."""


def parser_of(*words: str) -> argparse.ArgumentParser:
    """Return the parser of ``isotrope WORDS``, which a verb makes when it runs.

    Args:
        words: a verb, and what it takes before ``--help``.
    """

    def request_help(parser: argparse.ArgumentParser, file: object = None) -> None:
        raise _HelpRequested(parser)

    module = importlib.import_module(f"isotrope.cli.{words[0].replace('-', '_')}")
    with mock.patch.object(argparse.ArgumentParser, "print_help", request_help):
        try:
            module.run([*words[1:], "--help"])
        except _HelpRequested as request:
            parser: argparse.ArgumentParser = request.args[0]
            return parser
    raise AssertionError(f"isotrope {' '.join(words)} --help shows no help")


def completion(shell: str, root: Parser, verbs: dict[str, str]) -> str:
    """Return the program that a shell completes ``isotrope`` by.

    Args:
        shell: ``bash`` or ``zsh``.
        root: the parser of what stands before a verb.
        verbs: the verbs, each with its line of help.

    Raises:
        MissingExtra: shtab is not installed.
    """
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "shtab", extra="completion") from error
    parser = argparse.ArgumentParser(prog=root.prog, parents=[root], add_help=False)
    subparsers = parser.add_subparsers()
    for verb, line in verbs.items():
        made = parser_of(verb)
        for action in made._actions:
            _offer(action, shtab.FILE)
        subparsers.add_parser(verb, parents=[made], add_help=False, help=line)
    text: str = shtab.complete(parser, shell=shell)
    return text


def _offer(action: argparse.Action, file: dict[str, Any]) -> None:
    """Say what can be filled in: the choices of a flag, the objectives, or else files."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.dest == "objective":
        action.choices = sorted(declared())
    elif "|" in metavar:
        action.choices = metavar.split("|")
    elif action.choices is not None:
        action.choices = list(action.choices)  # of shtab, a dictionary would be verbs
    elif action.nargs != 0:
        action.complete = file  # type: ignore[attr-defined] # where shtab looks for it
