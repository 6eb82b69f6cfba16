"""``isotrope audit``: say before a training what an objective will do to the data."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser, check_readable, dotted
from isotrope.core.errors import InputError
from isotrope.data.text.datasets import by_dataset

EPILOG = """\
examples:
  isotrope audit pairs.tsv --encoder all-MiniLM-L6-v2
  isotrope audit pairs.tsv --encoder all-MiniLM-L6-v2 --batch-size 128 --output audits/pairs
  isotrope audit sentences.txt --encoder path/to/model --objective mpt --objective.margin 0.3
  isotrope audit pairs.tsv --encoder all-MiniLM-L6-v2 --mine 2 --output audits/pairs
  isotrope train audits/pairs/cleaned.jsonl --groups label --output runs/cleaned
  isotrope train audits/pairs/grouped.jsonl --groups label --output runs/grouped
  isotrope train audits/pairs/mined.jsonl --groups label --output runs/mined

Nothing is trained: the encoder embeds every text once, cut as training cuts it. The output says how
the objective behaves at the first step with each setting, and which values to begin with; which
pairs of rows push each other as rows that belong together do (likely false negatives); which rows
have a positive that is far away or a text that is cut, or occur twice; and whether whitening helps.

Rows are named by their lines in the file, counted from 1. With --output a folder gets the page
audit.html, audit.json, cleaned.jsonl, grouped.jsonl and, with --mine, mined.jsonl. The rows of the
last three have a column label, equal for rows of one group, of --groups or likely: for
`train --groups label`, and for ObjectiveLoss with groups=True in the trainer of
sentence-transformers.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, check what can be checked at once, audit, print."""
    flags, others = dotted(arguments, "objective")
    settings = {flag.removeprefix("objective."): value for flag, value in flags.items()}
    options = _parsed(others)
    if len(options.data) > 1:
        raise InputError(
            f"audit takes one file; found {len(options.data)}: a batch of a training is of one "
            "data set, so audit each by itself"
        )
    ((file,),) = by_dataset(options.data).values()  # of NAME=FILE, as train takes it
    check_readable(Path(file), *options.plugin)
    if options.dev not in (None, "auto", "none"):
        check_readable(Path(options.dev))
    if not options.plugin:
        from isotrope.paradigm.declared import check_declared

        check_declared(options.objective, settings)
    if options.output is not None and options.output.is_file():
        raise InputError(f"--output {options.output} is a file; give a folder")
    columns = [name.strip() for c in options.columns for name in c.split(",") if name.strip()]
    from isotrope.verbs import audit

    audited = audit(
        file,
        encoder=options.encoder,
        objective=options.objective,
        objective_settings=settings,
        columns=columns or None,
        groups=options.groups,
        views=options.views,
        batch_size=options.batch_size,
        max_length=options.max_length,
        query_prompt=options.query_prompt,
        passage_prompt=options.passage_prompt,
        dev=None if options.dev == "none" else options.dev,
        suspect=options.suspect,
        mine=options.mine,
        hardness=options.hardness,
        seed=options.seed,
        device=options.device,
        plugins=options.plugin,
        output=options.output,
        progress=True,
    )
    print(audited.to_json().rstrip() if options.json else audited)
    if options.output is not None:
        column = f"; train on its files with --groups label, which includes {options.groups}"
        print(f"written to {options.output}{column if options.groups else ''}", file=sys.stderr)
    return 0


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="isotrope audit",
        description="Check data and settings with the encoder, before training.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", metavar="DATA", nargs="+", help="one file of texts or pairs, as for `train`")
    add("--encoder", metavar="NAME", required=True, help="what training will begin with")
    add(
        "--objective",
        metavar="NAME",
        default="infonce",
        help="objective to analyse; settings as --objective.SETTING VALUE [infonce]",
    )
    add("--columns", metavar="NAME", action="append", default=[], help="of tables, as in training")
    add("--groups", metavar="NAME", help="column of groups of rows that belong together")
    add(
        "--views",
        choices=("auto", "dropout", "adjacent", "pairs"),
        default="auto",
        help="how a positive is made, as in training [auto]",
    )
    add("--batch-size", type=int, default=64, metavar="N", help="rows a step in training [64]")
    add("--max-length", type=int, default=32, metavar="N", help="tokens a text is cut to [32]")
    add("--query-prompt", metavar="TEXT", default="", help="put before every anchor")
    add("--passage-prompt", metavar="TEXT", default="", help="put before every positive")
    add(
        "--dev",
        metavar="auto|none|PATH",
        default="auto",
        help="what whitening is scored on: a part of DATA (auto), an STS file, a retrieval set",
    )
    add(
        "--suspect",
        type=float,
        default=0.1,
        metavar="X",
        help="reciprocal push from which two rows are likely false negatives [0.1]",
    )
    add("--mine", type=int, default=0, metavar="N", help="hard negatives for each anchor [0]")
    add(
        "--hardness",
        type=float,
        default=0.3,
        metavar="X",
        help="the largest share of the push on an anchor that one of them may have [0.3]",
    )
    add("--seed", type=int, default=0, metavar="N", help="of batches and dropout [0]")
    add("--device", default="auto", metavar="auto|cpu|cuda|mps", help="where to embed [auto]")
    add("--plugin", metavar="FILE", action="append", default=[], type=Path, help="with objectives")
    add("--output", metavar="DIR", type=Path, help="write the page and the files for a training")
    add("--json", action="store_true", help="print JSON and nothing else")
    return parser.parse_args(list(arguments))
