"""``isotrope reproduce``: the papers' tables and figures, measured anew."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.cli.arguments import Parser
from isotrope.core.errors import InputError

if TYPE_CHECKING:
    from isotrope.experiments.reproduce.artifact import Artifact, Verdict
    from isotrope.experiments.reproduce.cell import Cell
    from isotrope.experiments.reproduce.places import Places
    from isotrope.experiments.reproduce.store import Store

SCALES = ("smoke", "cpu", "paper")

EPILOG = """\
examples:
  isotrope reproduce
  isotrope reproduce unified-gradient figure2
  isotrope reproduce unified-gradient table3 --scale cpu --data ../shared/data --jobs 2
  isotrope reproduce unified-gradient table3 --scale paper --dry-run
  isotrope reproduce mio --scale smoke
  isotrope reproduce --all --smoke

Without a paper: the list. Scales: smoke is tiny and needs nothing but this package: it shows that
everything runs and draws, and its numbers mean nothing. cpu tests each claim on a small encoder
and real data (--data: a folder with sts/, transfer/, corpus/, cifar10/, standin-mlm/). paper is the
papers' own configuration, for whoever has the models, the data and a GPU; --dry-run resolves every
name in it and says what is missing here, without running anything.

What takes time is a cell: one training, or one measurement, with one seed. Cells that several
tables ask for are run once; each is kept as it finishes (OUTPUT/cells), so that the same command
goes on where it was stopped. A training that was cut off is started again from its last checkpoint.

Written to OUTPUT/PAPER: NAME.md, NAME.csv and pictures; to OUTPUT/verdicts.md what became of every
claim. A claim that fails is a result, and no error: the exit code is 0.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, run what is missing, print tables and verdicts."""
    given = _parsed(arguments)
    from isotrope.experiments.reproduce.artifact import artifacts, find

    if not given.paper and not given.all:
        for artifact in artifacts():
            print(f"{artifact.paper:<17} {artifact.name:<18} {artifact.title}")
        return 0
    chosen = artifacts() if given.all else find(given.paper, given.names)
    from isotrope.experiments.reproduce.places import Places

    data = given.data or _beside()
    if data is not None and not data.is_dir():
        raise InputError(f"--data: there is no folder {data}")
    places = Places(data, given.output / "data")
    cells = {(a.paper, a.name): list(a.cells(given.scale)) for a in chosen}
    if given.dry_run:
        return _dry(chosen, cells, places)
    return _measure(given, chosen, cells, places)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="isotrope reproduce",
        description="Measure the tables and figures of the papers anew, beside what was printed.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("paper", nargs="?", metavar="PAPER", help="as the list names it")
    add("names", nargs="*", metavar="NAME", help="tables and figures of it [all]")
    add("--all", action="store_true", help="everything of every paper")
    add("--scale", choices=SCALES, help="[cpu]")
    add("--smoke", action="store_true", help="the same as --scale smoke")
    add("--data", type=Path, metavar="DIR", help="[../shared/data beside a checkout, if it is]")
    add("--output", type=Path, metavar="DIR", default=Path("reproduced"), help="[reproduced]")
    add("--jobs", type=int, default=1, metavar="N", help="cells at a time [1]")
    add("--minutes", type=float, metavar="M", help="start no cell after so many")
    add("--dry-run", action="store_true", help="resolve every name, run nothing")
    add("--show", action="store_true", help="run nothing: tables of what there is")
    add("--json", action="store_true", help="print JSON and nothing else")
    given = parser.parse_args(list(arguments))
    if given.all and given.paper:
        parser.error(f"--all means every paper; found {given.paper} too")
    if given.smoke and given.scale not in (None, "smoke"):
        parser.error(f"--smoke is --scale smoke; found --scale {given.scale} too")
    if given.jobs < 1:
        parser.error(f"--jobs must be 1 or more; found {given.jobs}")
    given.scale = "smoke" if given.smoke else given.scale or "cpu"
    return given


def _beside() -> Path | None:
    """The shared data beside a checkout of this repository."""
    found = Path(__file__).resolve().parents[4] / "shared" / "data"
    return found if found.is_dir() else None


def _dry(
    chosen: "Sequence[Artifact]",
    cells: "dict[tuple[str, str], list[Cell]]",
    places: "Places",
) -> int:
    from isotrope.experiments.reproduce.runner import lacking

    needed: dict[str, None] = {}
    for artifact in chosen:
        own = cells[artifact.paper, artifact.name]
        missing = dict.fromkeys(line for lines in lacking(own, places).values() for line in lines)
        word = "ready" if not missing else f"needs {len(missing)} thing(s) that are not here"
        print(f"{artifact.paper:<17} {artifact.name:<18} {len(set(own)):>4} cells, {word}")
        needed |= missing
    every = {cell for own in cells.values() for cell in own}
    print(f"{len(every)} different cells; every name in them resolves")
    for line in needed:
        print(f"not here: {line}")
    return 0


def _measure(
    given: argparse.Namespace,
    chosen: "Sequence[Artifact]",
    cells: "dict[tuple[str, str], list[Cell]]",
    places: "Places",
) -> int:
    from isotrope.core.files import replacing
    from isotrope.experiments.reproduce import runner
    from isotrope.experiments.reproduce.artifact import Found
    from isotrope.experiments.reproduce.present import (
        as_json,
        as_text,
        provenance_of,
        summary,
        write,
    )
    from isotrope.experiments.reproduce.store import Store

    start = time.monotonic()
    store = Store(given.output / "cells")
    wanted = list(dict.fromkeys(cell for own in cells.values() for cell in own))
    if not given.show:
        _check_here(wanted, places, store)
        runner.run(
            _by_seed(wanted),
            store,
            places,
            given.output / "runs",
            jobs=given.jobs,
            minutes=given.minutes,
            tell=lambda line: print(line, file=sys.stderr, flush=True),
        )
    verdicts: list[tuple[Artifact, Sequence[Verdict]]] = []
    told = []
    for artifact in chosen:
        own = list(dict.fromkeys(cells[artifact.paper, artifact.name]))
        results = {c: r for c in own if (r := store.find(c)) is not None}
        found = Found(results)
        shown = artifact.show(given.scale, found)
        about = provenance_of(artifact, given.scale, found, len(own))
        files = write(artifact, shown, about, given.output)
        verdicts.append((artifact, shown.verdicts))
        if given.json:
            told.append({**as_json(artifact, shown, about), "files": [str(f) for f in files]})
        else:
            print(as_text(artifact, shown), *files, sep="\n", end="\n\n", flush=True)
    if given.all:
        with replacing(given.output / "verdicts.md") as temporary:
            temporary.write_text(summary(verdicts), encoding="utf-8")
    if given.json:
        print(json.dumps(told, ensure_ascii=False, allow_nan=False))
    else:
        print(f"{len(chosen)} tables and figures in {time.monotonic() - start:.0f} s")
    return 0


def _check_here(cells: "Sequence[Cell]", places: "Places", store: "Store") -> None:
    """Refuse before anything runs if data are missing."""
    from isotrope.experiments.reproduce.runner import lacking

    waiting = [cell for cell in cells if store.find(cell) is None]
    missing = dict.fromkeys(line for lines in lacking(waiting, places).values() for line in lines)
    if missing:
        raise InputError(
            f"not on this machine: {'; '.join(missing)}. --dry-run says what each table needs, "
            "--show prints what there is, --scale smoke needs no data"
        )


def _by_seed(cells: "Sequence[Cell]") -> "list[Cell]":
    """The first seed of everything before the second."""
    seeds = sorted({cell.seed for cell in cells})
    return [cell for seed in seeds for cell in cells if cell.seed == seed]
