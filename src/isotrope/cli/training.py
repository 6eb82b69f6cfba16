"""Code of ``train`` and ``train-images``: settings come from flags, a YAML file, or a run."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from isotrope.cli.arguments import Parser
from isotrope.cli.command import Command
from isotrope.core.documents import read_yaml
from isotrope.core.errors import InputError, SettingError, place
from isotrope.core.settings import flag
from isotrope.core.spelling import ACCEPTED
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings

S = TypeVar("S", bound=RunSettings)


@dataclass(frozen=True)
class Training(Command[S]):
    """A command that trains. It also reads settings from a file, and can resume a run."""

    def parser(self) -> Parser:
        """Return the parser, with the flags ``--resume``, ``--config`` and ``--print-config``."""
        parser = super().parser()
        add = parser.add_argument_group("settings from a file, and resuming a run").add_argument
        add(
            "--resume",
            action="store_true",
            help="Continue from the newest checkpoint in --output. Without a checkpoint, start "
            "from step 0; if the run is finished, do nothing.",
        )
        add("--config", metavar="FILE", help="YAML file with any of these settings.")
        add("--print-config", action="store_true", help="Print the resulting YAML and stop.")
        return parser

    def __call__(self, arguments: Sequence[str]) -> int:
        """Parse and check the settings, then print them or train."""
        parser = self.parser()
        if {"-h", "--help"} & set(arguments):
            _list_settings(parser, arguments)
        given = self.values(parser, arguments)
        resume, config, show = (given.pop(k) for k in ("resume", "config", "print_config"))
        values = {**from_file(self.settings, config), **given}
        try:
            settings = self.settings.read(values, source=config or "")
        except SettingError as error:
            if error.setting in given:  # a flag is wrong, not the file
                error.source = ""
            raise
        if show:
            from isotrope.training.early_checks import chosen_later

            left = chosen_later(settings)
            print(settings.to_yaml(left), end="")
            if left:
                print(f"# chosen when the data are read: {', '.join(map(flag, sorted(left)))}")
            return 0
        return self.act(settings, resume=resume)


def train(settings: RunSettings, *, resume: bool) -> int:
    """Train, print a summary with the model's path, and return the exit code."""
    from isotrope.training.early_checks import as_begun, check_early, check_not_taken

    check_not_taken(Path(settings.output))
    if resume and isinstance(settings, TrainSettings):
        settings = as_begun(settings)
    check_early(settings, resume=resume)
    module = importlib.import_module(settings.module)
    outcome = module.train(settings, resume=resume, lines=True)
    if outcome.first:
        from isotrope.training.run import stop_message

        print(stop_message(outcome) if outcome.exit_code else module.summary(outcome))
    return int(outcome.exit_code)


EXIT_CODES = """
exit codes: 0 done; 1 a bug; 2 bad input; 75 SIGTERM stopped the run, or a process of the run died;
130 Ctrl-C. After 75 and 130, run the same command with --resume to continue from the newest
checkpoint.
"""


def from_file(cls: type[RunSettings], config: str | None) -> Mapping[str, Any]:
    """Return a dict from field to value for the fields that a YAML file sets; {} without a file."""
    if not config:
        return {}
    names = {alias: name for name, alias in ACCEPTED.items()}
    values: dict[str, Any] = {}
    for key, value in read_yaml(Path(config)).items():
        name = names.get(str(key).replace("_", "-"), key)
        if name in values:
            raise InputError(f"{place(config)}: leave out {key!r}: {name!r} is set twice")
        values[name] = value
    return cls.by_field(values, source=config)


def _list_settings(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the settings of the objective to the help, if ``--objective NAME`` is given too."""
    words = [p for word in arguments for p in (word.split("=", 1) if word[:2] == "--" else [word])]
    given: dict[str, list[str]] = {"--objective": [], "--plugin": []}
    for flag_, value in pairwise(words):
        if flag_ in given:
            given[flag_].append(value)
    if not given["--objective"]:
        return
    from isotrope.core.hyper import hypers
    from isotrope.paradigm import registry
    from isotrope.paradigm.portrait import shown

    registry.load_plugins(given["--plugin"])
    for named in given["--objective"][-1].split(","):  # one, or DATASET=NAME for each
        cls = registry.find(named.rpartition("=")[2])
        group = parser.add_argument_group(f"settings of {cls.name}")
        for field, hyper in hypers(cls).items():
            text = f"{hyper.help or hyper.symbol}; {hyper.bounds} [{shown(getattr(cls, field))}]"
            group.add_argument(f"--objective.{field}", metavar="X", help=text.replace("%", "%%"))
