"""``isotrope diagnose``: say what is wrong with a run or a model, and what to change."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser, dotted
from isotrope.encoders.names import resolve

EPILOG = """\
examples:
  isotrope diagnose runs/first
  isotrope diagnose runs/first --json
  isotrope diagnose OUTPUT_DIR
  isotrope diagnose all-MiniLM-L6-v2
  isotrope diagnose path/to/model --data my-texts.txt
  isotrope diagnose path/to/model --data pairs.tsv --objective infonce --objective.temperature 0.1
  isotrope diagnose path/to/image-model --data photos/

For a run, the log, the dev scores, the settings and the saved model are examined; the diagnosis is
also written to RUN/diagnosis.json, where `isotrope report` finds it. For a model, its embeddings of
--data are examined, or those of pairs of docstrings of Python's own library. With --data of text
come the statistics of Li et al. (2024), too: angles, cosines, the hardest share, Lemma 1, and
dynamic ratios; and the score whitened beside the score as it is, which says whether the encoder is
raw, disturbed or trained. For the OUTPUT_DIR of another trainer, it is what isotrope.Doctor() saw
of the training.

The first finding is the likely root cause; its consequences are not listed. Each finding has its
numbers with their thresholds, the source of these, and one setting of `isotrope train` to change.
docs/diagnosis.md lists all thresholds.

exit codes: 0 whatever the verdict, 2 bad input, 1 a bug.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, examine, diagnose, print."""
    flags, others = dotted(arguments, "objective")
    settings = {flag.removeprefix("objective."): value for flag, value in flags.items()}
    options = _parsed(others, settings)
    if not Path(options.target).exists():  # else a run, a model, or what another trainer wrote
        resolve(options.target)
    from isotrope.diagnostics.target import diagnose

    columns = [name.strip() for c in options.columns for name in c.split(",") if name.strip()]
    diagnosis = diagnose(
        options.target,
        data=options.data,
        columns=columns or None,
        objective=options.objective,
        objective_settings=settings,
        plugins=options.plugin,
    )
    print(diagnosis.to_json().rstrip() if options.json else diagnosis)
    return 0


def _parsed(arguments: Sequence[str], settings: dict[str, str]) -> argparse.Namespace:
    parser = Parser(
        prog="isotrope diagnose",
        description="Say why a run collapsed, stalled or overfitted, and what to change.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "target",
        metavar="RUN_OR_MODEL",
        help="folder of a run, of a training that isotrope.Doctor watched, of a model; or its name",
    )
    add("--data", metavar="FILE", help="text, pairs or images to embed [the run's own]")
    add("--columns", metavar="NAME", action="append", default=[], help="of tables, as in training")
    add(
        "--objective",
        metavar="NAME",
        help="measure its components on the data; settings as --objective.SETTING VALUE",
    )
    add("--plugin", metavar="FILE", action="append", default=[], type=Path, help="with objectives")
    add("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args(list(arguments))
    if options.columns and options.data is None:
        parser.error("--columns are those of --data FILE")
    if settings and not options.objective:
        parser.error(f"--objective.{next(iter(settings))} needs --objective NAME")
    return options
