"""Reads the settings of ``train`` and ``train-images``: flags, a YAML file and --resume."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from isotrope.cli.arguments import Parser, add_fields, dotted
from isotrope.core.setting_aliases import ACCEPTED
from isotrope.training.settings import RunSettings, read_yaml

__all__ = ["parsed_settings"]

Settings = TypeVar("Settings", bound=RunSettings)


def parsed_settings(
    parser: Parser, arguments: Sequence[str], cls: type[Settings], positional: str
) -> tuple[Settings, bool] | None:
    """Return the settings and whether to resume; None after printing the settings.

    Args:
        parser: with the positional argument, which may be absent where a file names it.
        arguments: of the command line.
        cls: of the settings.
        positional: the field that has no flag.

    Raises:
        InputError: anything wrong with them.
    """
    add_fields(parser, cls.ordered(), skip={positional, *cls.collected()})
    if {"-h", "--help"} & set(arguments):
        _add_settings(parser, arguments)
    add = parser.add_argument_group("settings from a file, and resuming a run").add_argument
    add(
        "--resume",
        action="store_true",
        help="continue if the folder has a checkpoint, start if it has none, do nothing if done",
    )
    add("--config", metavar="FILE", help="YAML with any of these settings")
    add("--print-config", action="store_true", help="print the resulting YAML and stop")
    others = list(arguments)
    chosen: dict[str, str] = {}
    for prefix in cls.dotted:
        dotted_values, others = dotted(others, prefix)
        chosen |= dotted_values
    parser.dotted = cls.dotted_names
    flag_values = vars(parser.parse_args(others))
    resume, config, show = (flag_values.pop(k) for k in ("resume", "config", "print_config"))
    if not flag_values[positional]:
        del flag_values[positional]
    names = {alias: name for name, alias in ACCEPTED.items()}
    from_file = read_yaml(Path(config)) if config else {}
    from_file = {names.get(str(key).replace("_", "-"), key): v for key, v in from_file.items()}
    values = cls.by_field(from_file, source=config or "") | flag_values | chosen
    settings = cls.read(values, source=config or "")
    if show:
        print(settings.to_yaml(), end="")
        return None
    return settings, resume


def _add_settings(parser: Parser, arguments: Sequence[str]) -> None:
    """Let the help list the settings of the objective that is named beside ``--help``."""
    objectives = [word.partition("=")[2] for word in arguments if word.startswith("--objective=")]
    objectives += [after for word, after in pairwise(arguments) if word == "--objective"]
    if not objectives:
        return
    from isotrope.core.hyper import hypers
    from isotrope.paradigm import registry
    from isotrope.paradigm.portrait import shown

    cls = registry.find(objectives[-1])
    group = parser.add_argument_group(f"settings of {cls.name}")
    for field, hyper in hypers(cls).items():
        text = f"{hyper.help or hyper.symbol}; {hyper.bounds} [{shown(getattr(cls, field))}]"
        group.add_argument(f"--objective.{field}", metavar="X", help=text.replace("%", "%%"))
