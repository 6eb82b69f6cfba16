"""Makes a command from a settings class: the parser, the help and the completion.

A command consists of a settings class (``core.settings``), a function that takes an instance of
this class, and examples.
"""

import argparse
import importlib
import json
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from isotrope.cli.arguments import Parser, add_fields, dotted
from isotrope.core.settings import Settings, Used, extra_of, flag, setting
from isotrope.core.spelling import as_flag
from isotrope.paradigm.declared import objective_settings

S = TypeVar("S", bound=Settings)
_NAMED = "needs `--objective NAME`"


class OfObjective(Settings):
    """Settings that include those of an objective chosen by name."""

    dotted = ("objective",)
    objective_settings: dict[str, float | str] = setting(
        {}, "Settings of the objective.", used=Used(lambda objective: objective, _NAMED)
    )

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return the settings of all objectives."""
        return objective_settings()


@dataclass(frozen=True)
class Command(Generic[S]):
    """A command, such as ``isotrope train``. A call parses arguments and returns the exit code.

    Attributes:
        act: Function that does the work and returns the exit code.
        more: Examples and notes that the help prints below the flags.
        usage: First line of the help. If it is None, the line lists the required arguments.
    """

    verb: str
    settings: type[S]
    act: Callable[..., int]
    description: str
    more: str
    usage: str | None = None

    def parser(self) -> Parser:
        """Return the parser of the command."""
        parser = Parser(
            prog=f"isotrope {self.verb}",
            usage=self.usage or self._usage(),
            description=self.description,
            epilog=self.more,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.dotted = self.settings.dotted_names
        collected = self.settings.collected()
        fields = {k: v for k, v in self.settings.ordered().items() if k not in collected}
        add_fields(parser, fields, both_ways=self.settings.from_file)
        return parser

    def _usage(self) -> str:
        words = []
        for name, field in self.settings.model_fields.items():
            extra = extra_of(field)
            if extra.get("positional"):
                many = " ..." if typing.get_origin(field.annotation) is list else ""
                word = f"{extra['metavar']}{many}"
                words.append(word if field.is_required() else f"[{word}]")
            elif field.is_required():
                words.append(f"{extra.get('short') or '--' + name} {extra.get('metavar')}")
        return " ".join(["isotrope", self.verb, *words, "[options]"])

    def spelling(self, name: str, value: str) -> str:
        """Return how an error names a setting: ``--batch-size 64``, or ``FILE pairs.tsv``."""
        if place := self.settings.positionals().get(name):
            return f"{place} {value}".rstrip()
        extras = {flag(key): extra_of(field) for key, field in self.settings.model_fields.items()}
        own = extras.get(name, {}).get("name")  # such as --tasks for the field ``only``
        return as_flag(own[2:] if own else name, value)

    def values(
        self, parser: Parser, arguments: Sequence[str], of: type[Settings] | None = None
    ) -> dict[str, Any]:
        """Parse arguments into a dict from field to value, for the class ``of`` (default: ours)."""
        settings = of or self.settings
        others = list(arguments)
        chosen: dict[str, Any] = {}
        for prefix in settings.dotted:
            of_prefix, others = dotted(others, prefix)
            chosen |= of_prefix
        given = vars(parser.parse_args(others))
        empty = [name for name in settings.positionals() if not given.get(name)]
        return {name: value for name, value in given.items() if name not in empty} | chosen

    def __call__(self, arguments: Sequence[str]) -> int:
        """Parse and check the arguments, then do the work."""
        return self.act(self.settings.read(self.values(self.parser(), arguments)))


def load(verb: str) -> "Command[Any]":
    """Import the module of a command and return the command."""
    command: Command[Any] = importlib.import_module(f"isotrope.cli.{verb.replace('-', '_')}").run
    return command


def model() -> Any:  # noqa: ANN401 - a default, as pydantic.Field
    """Return the field that names an encoder."""
    described = "Run folder, model folder, Hugging Face id, or all-MiniLM-L6-v2 if installed."
    return setting(..., described, "MODEL", positional=True)


def plugin() -> Any:  # noqa: ANN401
    """Return the field for Python files that define objectives."""
    return setting([], "Python file of your objectives. Repeat the flag for more files.", "FILE")


def as_json() -> Any:  # noqa: ANN401
    """Return the field of the flag ``--json``."""
    return setting(False, "Print JSON and nothing else.", name="--json")


def in_ascii(text: str) -> str:
    """Return JSON in ASCII, which every terminal and pipe can show, whatever its encoding."""
    return json.dumps(json.loads(text), indent=2)
