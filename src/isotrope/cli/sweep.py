"""``isotrope sweep``: train with many values of some settings, and rank the results."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.cli.arguments import Parser, add_fields
from isotrope.cli.command import Command, in_ascii
from isotrope.cli.training import from_file
from isotrope.core.errors import InputError, nearest, needs_extra
from isotrope.core.settings import Used, setting
from isotrope.core.table import table
from isotrope.sweeps.spec import RUNS, SweepSettings

if TYPE_CHECKING:
    from isotrope.sweeps.spec import Sweep
    from isotrope.sweeps.trials import Trial
    from isotrope.training.run_settings import RunSettings

EPILOG = """\
examples:
  isotrope sweep train wiki.txt --dev stsb/dev.tsv --vary objective.temperature=0.03,0.05,0.1 \\
      --output sweeps/temperature
  isotrope sweep train wiki.txt --dev auto --vary learning-rate=1e-5..1e-4 \\
      --vary objective=infonce,met,mpt --sampler random --trials 20 --output sweeps/a
  isotrope sweep train wiki.txt --dev auto --vary learning-rate=1e-5..1e-4 --sampler tpe \\
      --trials 30 --jobs 2 --output sweeps/b
  isotrope sweep train-images cifar10/ --epochs 20 --vary weight-decay=1e-6..1e-3:4 \\
      --output sweeps/d

All flags of `isotrope train` or `isotrope train-images`, including --config, apply to every run,
except --output, --seed and --no-progress. --vary takes the names of these flags, including
objective.SETTING and method.OPTION.

--vary NAME=VALUES; repeat the flag for several settings:
  objective.temperature=0.03,0.05   these values
  objective.temperature=auto,0.1    auto: what `isotrope audit` recommends (needs --head none)
  learning-rate=1e-5..1e-4          a range to draw from. The scale is logarithmic if the upper end
                                    is at least ten times the lower end. :log or :linear after the
                                    range sets the scale, and :whole draws whole numbers
  learning-rate=1e-5..1e-4:5        five values of the range, for a grid

A trial is one combination of values. --sampler grid, the default for lists, trains every
combination. --sampler random, the default for ranges, draws --trials combinations. --sampler tpe
(Optuna's tree-structured Parzen estimator) chooses each trial by the scores of the earlier trials.

The score of a run is dev_best for text (the best dev score, step 0 included) and knn_final for
images; --metric selects another number of result.json. Every trial is trained with three seeds; the
score of the trial is the mean over the seeds. With one seed (--seeds 0), a sweep takes a third of
the time. No trial is named the best if the difference to another trial, or to the model before
training, may be luck (Tukey's range test over the seeds at level 0.05).

Every run is an ordinary run folder in DIR/runs; `isotrope report DIR/runs/*` compares the runs. To
continue a stopped sweep, or to add values, seeds or trials, repeat the command; finished runs are
not trained again. DIR/sweep.csv and DIR/sweep.json have the table, and DIR/sweep.svg is a picture.
The command line of the best trial, if there is one, is printed. `optuna-dashboard DIR/optuna.log`
opens Optuna's journal. A sweep needs Optuna: pip install '.[sweep]' in a clone of the repository.

With --jobs N, N runs are trained at a time. On a machine with GPUs, each run uses one GPU, and the
default of N is the number of GPUs. exit codes: 0 done; 2 bad input; 75 or 130 stopped. After 75 and
130, the same command continues the sweep.
"""

_MOST = 20  # trials in the printed table


class _SweepFlags(SweepSettings):
    """Settings of ``isotrope sweep`` in addition to the settings of every run."""

    dry_run: bool = setting(False, "Check everything and print the trials, without training.")
    show: bool = setting(False, "Print the table of the finished runs, without training.")
    as_json: bool = setting(
        False,
        "Print JSON and nothing else.",
        name="--json",
        used=Used(lambda dry_run: not dry_run, "`--dry-run` prints no JSON", note=True),
    )


@dataclass(frozen=True)
class _SweepCommand(Command[_SweepFlags]):
    """The command ``sweep``, whose first argument is the command that it repeats."""

    def parser(self, verb: str = "") -> Parser:
        """Return a parser; it also accepts the flags of the repeated command ``verb``, if given."""
        parser = super().parser()
        if verb:
            cls = RUNS[verb]
            skip = {*cls.collected(), *_SweepFlags.model_fields, "seed", "progress"}
            shared = {k: v for k, v in cls.ordered().items() if k not in skip}
            add_fields(parser, shared, both_ways=True)
            parser.add_argument("--config", metavar="FILE")
            parser.dotted = cls.dotted_names
        return parser

    def spelling(self, name: str, value: str) -> str:
        """Return the name by which an error calls a setting of the sweep or of its runs."""
        places = {k: v for cls in RUNS.values() for k, v in cls.positionals().items()}
        return places.get(name) or super().spelling(name, value)

    def __call__(self, arguments: Sequence[str]) -> int:
        """Parse the arguments, then run the sweep."""
        verb = arguments[0] if arguments else ""
        if verb in ("-h", "--help") or (verb in RUNS and {"-h", "--help"} & set(arguments)):
            self.parser().parse_args(["--help"])
        if verb not in RUNS:
            raise InputError(
                f"name the command to repeat, one of {', '.join(RUNS)}; found {verb!r}"
                f"{nearest(verb, RUNS)} (see `isotrope sweep --help`)"
            )
        cls = RUNS[verb]
        given = self.values(self.parser(verb), arguments[1:], cls)
        own = {k: given.pop(k) for k in _SweepFlags.model_fields if k in given}
        base = {**from_file(cls, given.pop("config", None))}
        for name in ("output", "seed", "progress"):
            base.pop(name, None)
        return sweep(_SweepFlags.read(own), cls, base | given)


def sweep(settings: _SweepFlags, cls: "type[RunSettings]", base: dict[str, Any]) -> int:
    """Train the runs that are not finished; print the table and the best trial's command line."""
    with needs_extra("sweep"):
        from isotrope.sweeps.spec import plan
        from isotrope.sweeps.sweep import existing
        from isotrope.sweeps.sweep import sweep as train
        from isotrope.sweeps.tables import as_result, write
    spec = plan(cls, base, settings)
    if settings.dry_run:
        return _dry(spec)
    report = partial(print, file=sys.stderr, flush=True)
    trials = existing(spec) if settings.show else train(spec, report)
    files = [] if settings.show else write(spec, trials)
    if settings.as_json:
        print(in_ascii(as_result(spec, trials).to_json()))
    else:
        print(_text(spec, trials, files))
    failures = [why for trial in trials for why in trial.failures]
    if failures:
        raise InputError(
            f"repeat this command to train {len(failures)} failed runs again: {failures[0]}"
        )
    if not settings.show and all(trial.score is None for trial in trials):
        raise InputError("choose other values or another `--metric`: no trial has a score")
    return 0


def _dry(spec: "Sweep") -> int:
    from isotrope.sweeps.plan import check_sweep, grid

    check_sweep(spec)
    every = grid(spec)
    count = spec.chosen.trials if every is None else len(every)
    print(f"{count} trials, {count * len(spec.chosen.seeds)} runs, {spec.jobs} at a time")
    if every is None:
        print("  " + ", ".join(f"{entry.name} {' .. '.join(entry.ends)}" for entry in spec.varied))
    for values in every or ():
        print("  " + " ".join(f"{name}={value}" for name, value in values.items()))
    return 0


def _text(spec: "Sweep", trials: "Sequence[Trial]", files: Sequence[Path]) -> str:
    from isotrope.sweeps.tables import best_command, verdict
    from isotrope.sweeps.tables import table as rows_of

    header, rows = rows_of(spec, trials)
    where = f"in {files[1]}" if files else "with --json"
    more = f"\n({len(rows) - _MOST} more {where})" if len(rows) > _MOST else ""
    if any(trial.deviation is not None for trial in trials):
        more += "\n± standard deviation over the seeds"
    command = best_command(spec, trials)
    best = "" if command is None else f"the best:\n{command}"
    noise = verdict(spec, trials).noise
    blocks = [table(header, rows[:_MOST]) + more, best, noise, "\n".join(map(str, files))]
    return "\n\n".join(filter(None, blocks))


run = _SweepCommand(
    "sweep",
    _SweepFlags,
    sweep,
    "Train with several values of some settings, and find the best values.",
    EPILOG,
    usage="isotrope sweep train|train-images DATA --vary NAME=VALUES ... --output DIR",
)
