"""Completes verbs, flags and values in a shell, by shtab from the parsers of all verbs."""

import argparse
from typing import Any

from isotrope.cli.arguments import Parser
from isotrope.cli.command import load
from isotrope.core.errors import MissingExtra
from isotrope.paradigm.declared import declared


def completion(shell: str, root: Parser, verbs: dict[str, str]) -> str:
    """Return the completion script for a shell."""
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "shtab", extra="completion") from error
    parser = argparse.ArgumentParser(prog=root.prog, parents=[root], add_help=False)
    subparsers = parser.add_subparsers()
    for verb, line in verbs.items():
        made = load(verb).parser()
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
