"""``python -m papers PAPER NAME``: measures tables and figures beside what was printed."""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from isotrope.core import InputError, format_duration, write_text
from papers.machinery import pages, runner
from papers.machinery.artifact import SCALES, Artifact, Results
from papers.machinery.catalogue import artifacts, find_artifacts
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore
from papers.stages import DATA, PapersParser, say

EPILOG = """\
examples:
  python -m papers
  python -m papers unified-gradient figure2
  python -m papers mio table2 --scale cpu --data ../shared/data --jobs 2
  python -m papers mio table2 --scale paper --dry-run
  python -m papers mio --scale smoke
  python -m papers --all --smoke
  python -m papers encoder raw-2x128-pmi --seed 0   # a masked language model from scratch
  python -m papers text                             # the claims on sentence embeddings, on that
  python -m papers starts                           # what an exchange gains, by the start
  python -m papers gpu                              # a larger encoder, and table 3's pairs on it
  python -m papers bench my_loss.py                 # a loss of your own beside them

Without a paper: the list. Scales: smoke is tiny and needs nothing but isotrope: it shows that
everything runs and draws, and its numbers mean nothing. cpu tests each claim on a small encoder
and real data (--data: a folder with sts/, transfer/, corpus/, cifar10/, standin-mlm/). paper is the
papers' own configuration, for whoever has the models, the data and a GPU; --dry-run resolves every
name in it and says what is missing here, without running anything.

What takes time is a job: one training, or one measurement, with one seed. Jobs that several
tables ask for are run once; each is kept as it finishes (OUTPUT/cells), so that the same command
goes on where it was stopped. A training that was cut off is started again from its last checkpoint.

Written to OUTPUT/PAPER: NAME.md, NAME.csv and pictures; to OUTPUT/verdicts.md what became of every
claim. A claim that is contradicted is a result, and no error: the exit code is 0.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, run the missing jobs, print tables and verdicts."""
    options = _parse(arguments)
    if not options.paper and not options.all:
        return _list(artifacts())
    chosen = artifacts() if options.all else find_artifacts(options.paper, options.names)
    data = options.data or (DATA if DATA.is_dir() else None)
    if data is not None and not data.is_dir():
        raise InputError(f"--data: there is no folder {data}")
    sources = DataRegistry(data, options.output / "data", hub=not options.dry_run)
    jobs = {one: list(dict.fromkeys(one.jobs(options.scale))) for one in chosen}
    if options.dry_run:
        return _dry_run(jobs, sources)
    return _measure(options, jobs, sources)


def _list(chosen: Sequence[Artifact]) -> int:
    width = max(len(artifact.name) for artifact in chosen)
    for artifact in chosen:
        print(f"{artifact.paper:<17} {artifact.name:<{width}} {artifact.title}")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = PapersParser(
        prog="python -m papers",
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
    add("--output", type=Path, metavar="DIR", help="[reproduced/SCALE]")
    add("--jobs", type=int, default=1, metavar="N", help="jobs at a time [1]")
    add("--minutes", type=float, metavar="M", help="start no job after so many")
    add("--skip-missing", action="store_true", help="leave out jobs whose data are not here")
    add("--dry-run", action="store_true", help="resolve every name, run nothing")
    add("--show", action="store_true", help="run nothing: tables of what there is")
    options = parser.parse_args(list(arguments))
    if options.all and options.paper:
        parser.error(f"--all means every paper; found {options.paper} too")
    if options.smoke and options.scale not in (None, "smoke"):
        parser.error(f"--smoke is --scale smoke; found --scale {options.scale} too")
    if options.jobs < 1:
        parser.error(f"--jobs must be 1 or more; found {options.jobs}")
    if options.minutes is not None and not options.minutes > 0:
        parser.error(f"--minutes must be more than 0; found {options.minutes:g}")
    if options.dry_run and options.show:
        parser.error("--dry-run and --show are two questions; choose one")
    options.scale = "smoke" if options.smoke else options.scale or "cpu"
    options.output = options.output or Path("reproduced") / options.scale
    return options


def _missing(
    artifact: Artifact, jobs: Sequence[PaperJob], sources: DataRegistry
) -> dict[PaperJob, list[str]]:
    """What is not on this machine of each job of a table or figure."""
    try:
        return runner.missing_data(jobs, sources)
    except InputError as error:
        raise InputError(f"{artifact.paper} {artifact.name}: {error}") from error


def _different(missing: Mapping[PaperJob, Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(line for lines in missing.values() for line in lines))


def _dry_run(jobs: Mapping[Artifact, Sequence[PaperJob]], sources: DataRegistry) -> int:
    missing = {artifact: _missing(artifact, own, sources) for artifact, own in jobs.items()}
    width = max(len(artifact.name) for artifact in jobs)
    for artifact, lacking in missing.items():
        lines = _different(lacking)
        word = "ready" if not lines else f"needs what is not here: {len(lines)}"
        print(f"{artifact.paper:<17} {artifact.name:<{width}} {len(lacking):>4} jobs, {word}")
    every = {job: lines for lacking in missing.values() for job, lines in lacking.items()}
    print(f"{len(every)} different jobs; every name in them resolves")
    for line in _different(every):
        print(f"not here: {line}")
    return 0


def _measure(
    options: argparse.Namespace, jobs: Mapping[Artifact, Sequence[PaperJob]], sources: DataRegistry
) -> int:
    start = time.monotonic()
    store = JobStore(options.output / "cells")
    failed: dict[PaperJob, str] = {}
    if not options.show:
        wanted = _measurable(jobs, sources, store, skip=options.skip_missing)
        failed = runner.run(
            sorted(wanted, key=lambda job: job.seed),
            store,
            sources,
            options.output / "runs",
            processes=options.jobs,
            minutes=options.minutes,
            tell=say,
        )
    every = []
    for artifact, own in jobs.items():
        results = Results({job: r for job in own if (r := store.find(job)) is not None})
        rendered = pages.render(artifact, options.scale, results)
        about = pages.provenance_of(artifact, options.scale, results, len(own))
        files = pages.write(artifact, rendered, about, options.output)
        every.append((artifact, rendered))
        print(pages.as_text(artifact, rendered), *files, sep="\n", end="\n\n", flush=True)
    if options.all:
        write_text(options.output / "verdicts.md", pages.summary(every, options.scale))
    print(f"{len(jobs)} tables and figures in {format_duration(time.monotonic() - start)}")
    for job, why in failed.items():
        raise InputError(f"{len(failed)} jobs failed, the others are kept; {job.label}: {why}")
    return 0


def _measurable(
    jobs: Mapping[Artifact, Sequence[PaperJob]],
    sources: DataRegistry,
    store: JobStore,
    *,
    skip: bool,
) -> list[PaperJob]:
    """Return the jobs that can be measured here; refuse if others cannot, or leave them out."""
    lacking: dict[PaperJob, list[str]] = {}
    for artifact, own in jobs.items():
        lacking |= _missing(artifact, [job for job in own if store.find(job) is None], sources)
    missing = _different(lacking)
    if missing and not skip:
        raise InputError(
            f"not on this machine: {'; '.join(missing)}. --dry-run says what each table needs, "
            "--show prints what there is, --skip-missing measures the rest, --scale smoke needs "
            "no data"
        )
    for line in missing:
        say(f"left out: {line}")
    every = dict.fromkeys(job for own in jobs.values() for job in own)
    return [job for job in every if not lacking.get(job)]
