"""What ``train`` and ``train-images`` read alike: flags, a YAML file, --resume."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from isotrope.cli.arguments import Parser, add_fields, dotted
from isotrope.training.settings import RunSettings, read_yaml

__all__ = ["asked_for"]

Settings = TypeVar("Settings", bound=RunSettings)


def asked_for(
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
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue if the folder has a checkpoint, start if it has none, do nothing if done",
    )
    parser.add_argument("--config", metavar="FILE", help="YAML with any of these settings")
    parser.add_argument(
        "--print-config", action="store_true", help="print the resulting YAML and stop"
    )
    others = list(arguments)
    chosen: dict[str, str] = {}
    for prefix in cls.dotted:
        found, others = dotted(others, prefix)
        chosen |= found
    parser.dotted = cls.dotted_names
    given = vars(parser.parse_args(others))
    resume, config, show = (given.pop(k) for k in ("resume", "config", "print_config"))
    if not given[positional]:
        del given[positional]
    from_file = read_yaml(Path(config)) if config else {}
    values = cls.by_field(from_file, source=config or "") | given | chosen
    settings = cls.read(values, source=config or "")
    if show:
        print(settings.to_yaml(), end="")
        return None
    return settings, resume
