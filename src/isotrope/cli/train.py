"""``isotrope train``: fine-tune a sentence encoder."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser, add_fields, dotted
from isotrope.methods.settings import TrainSettings, read_yaml

EPILOG = """\
examples:
  isotrope train wiki.txt.gz --dev stsb/dev.tsv --eval-every 50 --output runs/wiki
  isotrope train docs/ --views adjacent --dev auto --output runs/docs
  isotrope train pairs.tsv --query-prompt "query: " --passage-prompt "passage: " --output runs/p
  isotrope train wiki.txt --objective barlowtwins --objective.dissipation margin:0.3 --output runs/b
  isotrope train wiki.txt --devices 4 --batch-size 1024 --output runs/wide
  isotrope train wiki.txt --batch-size 4096 --micro-batch 64 --output runs/large
  isotrope train --config runs/wiki/config.yaml --output runs/again
  isotrope train wiki.txt --output runs/wiki --resume

Flags and the YAML file are the same thing: --batch-size 64 is `batch-size: 64`, and
--objective.temperature 0.05 is `objective.temperature: 0.05`. A flag wins over the file.

The same flags give the same training on one device and on several: --batch-size is that of all, and
the loss sees all of it. Several machines: torchrun --nnodes 2 --nproc-per-node 4 ... -m isotrope
train ..., without --devices, with an --output that all of them see.

exit codes: 0 done, 2 bad input, 130 Ctrl-C and 75 stopped by a scheduler or by the loss of one of
several processes (they leave a checkpoint: run the same command with --resume), 1 a bug.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, train, print where the model is."""
    parser = Parser(
        prog="isotrope train",
        description="Fine-tune a sentence encoder on unlabelled text or pairs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help=_described("files"))
    add_fields(parser, TrainSettings.ordered(), skip={"files", "objective_settings"})
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue if the folder has a checkpoint, start if it has none, do nothing if done",
    )
    parser.add_argument("--config", metavar="FILE", help="YAML with any of these settings")
    parser.add_argument(
        "--print-config", action="store_true", help="print the resulting YAML and stop"
    )
    of_objective, others = dotted(arguments, "objective")
    given = vars(parser.parse_args(others))
    resume, config, show = (given.pop(k) for k in ("resume", "config", "print_config"))
    if not given["files"]:
        del given["files"]
    from_file = read_yaml(Path(config)) if config else {}
    values = {k.replace("-", "_"): v for k, v in from_file.items()} | given | of_objective
    settings = TrainSettings.read(values, source=config or "")
    if show:
        print(settings.to_yaml(), end="")
        return 0
    from isotrope.methods.training import summary, train

    outcome = train(settings, resume=resume)
    if outcome.first:
        print(summary(outcome), file=sys.stdout)
    return outcome.exit_code


def _described(name: str) -> str:
    return TrainSettings.model_fields[name].description or ""
