"""``isotrope sweep``: run many trainings that differ in some settings, and rank them."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.cli.arguments import Parser, add_fields, dotted, positionals
from isotrope.cli.command import Command, as_json
from isotrope.cli.training import from_file
from isotrope.core.errors import InputError, nearest, needs_extra
from isotrope.core.settings import setting
from isotrope.core.spelling import as_flag
from isotrope.core.table import table
from isotrope.sweeps.spec import SweepSettings, run_settings

if TYPE_CHECKING:
    from isotrope.sweeps.spec import Sweep
    from isotrope.sweeps.trials import Stage

VERBS = {"train": "files", "train-images": "data"}
"""Verbs that can be swept, and the setting of each that has no flag."""

EPILOG = """\
examples:
  isotrope sweep train wiki.txt --dev stsb/dev.tsv --vary objective.temperature=0.03,0.05,0.1 \\
      --output sweeps/temperature
  isotrope sweep train wiki.txt --dev auto --vary learning-rate=1e-5..1e-4 \\
      --vary objective=infonce,met,mpt --sampler random --trials 20 --output sweeps/a
  isotrope sweep train wiki.txt --dev auto --vary learning-rate=1e-5..1e-4 --sampler tpe \\
      --trials 30 --jobs 2 --output sweeps/b
  isotrope sweep train wiki.txt --dev dev.tsv --objective modifiedmhe --vary batch-size=64,128 \\
      --vary learning-rate=1e-5,3e-5 --then --vary objective.margin=0.2,0.3,0.4 \\
      --vary objective.ratio=1,1.5,2 --output sweeps/c
  isotrope sweep train-images cifar10/ --epochs 20 --vary weight-decay=1e-6..1e-3:4 \\
      --output sweeps/d

All flags of `isotrope train` and `isotrope train-images` except --output, --seed and --no-progress
apply to every run, including --config. Every setting, hyperparameter of the objective and option of
the method can be varied.

--vary NAME=VALUES, may be repeated:
  objective.temperature=0.03,0.05   these values
  objective.temperature=auto,0.1    each run finds its own, as `isotrope train` does (--head none)
  learning-rate=1e-5..1e-4          a range to draw from, by its logarithm if its ends are a factor
                                    of ten apart (:log, :linear say it; :whole: whole numbers)
  learning-rate=1e-5..1e-4:5        five values of the range, for a grid

Samplers: grid trains every combination (the default for lists of values); random draws --trials of
them (the default for ranges); tpe, Optuna's tree-structured Parzen estimator, chooses each trial by
the scores so far. --then begins another stage: it fixes the best values so far and varies the
settings after it.

The score is dev_best for text (the best dev score of a run, step 0 included) and knn_final for
images; --metric selects another number of a run's result.json. Every setting is trained with three
seeds (--seeds 0 takes a third of the time). A score is the mean over the seeds, and the table has
the standard deviation; smaller differences may be luck.

Every run is an ordinary run folder in OUTPUT/runs (`isotrope report OUTPUT/runs/*`). The same
command continues a stopped sweep and repeats no training; values, seeds and trials can be added
later. The table is written to OUTPUT/sweep.csv, .md, .svg and .json, and the best setting is
printed as a command line. OUTPUT/optuna.log is Optuna's journal: `optuna-dashboard
OUTPUT/optuna.log` opens it. A sweep needs Optuna: pip install '.[sweep]' in a checkout of isotrope.

With --jobs N, N runs are trained at a time. On a machine with GPUs each run gets one, and the
default is their number. exit codes: 0 done, 2 bad input, 75 or 130 stopped (the same command
continues).
"""


class _Stages(argparse.Action):
    """``--vary`` adds a setting to the present stage, ``--then`` begins the next."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if self.nargs == 0:
            namespace.stages.append([])
        else:
            namespace.stages[-1].append(values)


class _SweepFlags(SweepSettings):
    """Settings of ``isotrope sweep`` in addition to the settings of every run."""

    dry_run: bool = setting(False, "Check everything, print the settings, run nothing.")
    show: bool = setting(False, "Print the table of the finished runs, run nothing.")
    as_json: bool = as_json()


@dataclass(frozen=True)
class _SweepCommand(Command[_SweepFlags]):
    """The verb ``sweep``, before the verb that it repeats."""

    def parser(self, verb: str = "") -> Parser:
        """Return a parser; with the flags of a verb, which the help does not repeat."""
        parser = self.bare()
        add = parser.add_argument
        add("--vary", action=_Stages, metavar="NAME=VALUES", help="Setting to vary between runs.")
        help_of_then = "Begin another stage, from the best of this one."
        add("--then", action=_Stages, nargs=0, help=help_of_then)
        own = {k: v for k, v in _SweepFlags.model_fields.items() if k != "stages"}
        add_fields(parser, own)
        parser.set_defaults(stages=[[]], vary=None, then=None)
        if verb:
            cls = run_settings(verb)
            skip = {*cls.collected(), *own, "seed", "progress"}
            shared = {k: v for k, v in cls.ordered().items() if k not in skip}
            add_fields(parser, shared, both_ways=True)
            add("--config", metavar="FILE")
            parser.dotted = cls.dotted_names
        return parser

    def spelling(self, name: str, value: str) -> str:
        """Return how an error names a setting, of the sweep or of its runs."""
        return {"files": "FILE"}.get(name) or as_flag(name, value)

    def __call__(self, arguments: Sequence[str]) -> int:
        """Parse, train the missing runs, print the table and the best trial."""
        if not arguments or arguments[0] in ("-h", "--help"):
            self.parser().parse_args(list(arguments))
        verb = arguments[0] if arguments else ""
        if verb not in VERBS:
            raise InputError(
                f"a sweep repeats one of {', '.join(VERBS)}; found {verb!r}{nearest(verb, VERBS)} "
                "(see `isotrope sweep --help`)"
            )
        if {"-h", "--help"} & set(arguments):
            self.parser().parse_args(["--help"])
        settings, base = _split(verb, arguments[1:], self.parser(verb))
        return sweep(settings, base, verb, shlex.join(["isotrope", "sweep", *arguments]))


def _split(
    verb: str, arguments: Sequence[str], parser: Parser
) -> tuple[_SweepFlags, dict[str, Any]]:
    """Return the settings of the sweep, and those of every run."""
    cls, others = run_settings(verb), list(arguments)
    chosen: dict[str, Any] = {}
    for prefix in cls.dotted:
        values, others = dotted(others, prefix)
        chosen |= values
    given = vars(parser.parse_args(others))
    own = {k: given.pop(k) for k in _SweepFlags.model_fields if k in given}
    config = given.pop("config", None)
    for name in ("vary", "then"):
        given.pop(name, None)
    given = {k: v for k, v in given.items() if v or k not in positionals(cls.model_fields)}
    shared = dict(from_file(cls, config))
    for name in ("output", "seed", "progress"):
        shared.pop(name, None)
    return _SweepFlags.read(own), shared | given | chosen


def sweep(settings: _SweepFlags, base: dict[str, Any], verb: str, again: str) -> int:
    """Train the missing runs, print the table and the best trial."""
    with needs_extra("sweep", "optuna", "matplotlib"):
        from isotrope.sweeps.plan import plan
        from isotrope.sweeps.sweep import sweep as run_all
        from isotrope.sweeps.tables import as_result, best_command, write
    spec = plan(run_settings(verb), base, settings)
    if settings.dry_run:
        return _dry(spec)
    stages = run_all(
        spec,
        lambda line: print(line, file=sys.stderr, flush=True),
        measure=not settings.show,
    )
    best = best_command(spec, stages, VERBS[verb])
    files = write(spec, stages, again, best)
    if settings.as_json:
        print(as_result(spec, stages, again, best).to_json(), end="")
    else:
        print(_text(spec, stages, best, files))
    failures = [why for stage in stages for trial in stage.trials for why in trial.failures]
    if failures:
        raise InputError(f"{len(failures)} runs failed (others are kept); first: {failures[0]}")
    if best is None and not settings.show:
        raise InputError(f"no trial of stage {len(stages)} has a score")
    return 0


def _dry(spec: "Sweep") -> int:
    from isotrope.sweeps.plan import check_sweep
    from isotrope.sweeps.study import planned

    check_sweep(spec)
    for place, varied in enumerate(spec.stages, start=1):
        plan = planned(spec, varied)
        count = spec.trials if plan is None else len(plan)
        runs = count * len(spec.seeds)
        print(f"stage {place}: {count} trials, {runs} runs, {spec.jobs} at a time")
        if plan is None:
            print(
                "  "
                + ", ".join(f"{setting.name} {' .. '.join(setting.ends)}" for setting in varied)
            )
        for values in plan or ():
            print("  " + " ".join(f"{name}={value}" for name, value in values.items()))
    return 0


def _text(spec: "Sweep", stages: "Sequence[Stage]", best: str | None, files: Sequence[Path]) -> str:
    from isotrope.sweeps.tables import removed_models
    from isotrope.sweeps.tables import table as rows_of

    blocks = []
    for place, stage in enumerate(stages, start=1):
        header, rows = rows_of(spec, stage)
        head = f"stage {place}\n" if len(spec.stages) > 1 else ""
        more = f"\n({len(rows) - _MOST} more in {files[-1]})" if len(rows) > _MOST else ""
        blocks.append(head + table(header, rows[:_MOST]) + more)
    if best is not None:
        blocks.append(f"the best:\n{best}")
    if removed := removed_models(spec, stages):
        blocks.append(removed)
    return "\n\n".join([*blocks, "\n".join(map(str, files))])


_MOST = 20  # trials that are printed


run = _SweepCommand(
    "sweep",
    _SweepFlags,
    sweep,
    "Train with many settings, and find the best.",
    EPILOG,
    usage="isotrope sweep train|train-images DATA --vary NAME=VALUES ... --output DIR",
)
