"""``python -m papers``: reproduces the papers' tables and figures.

Exit codes: 0 done; 1 a bug; 2 bad input; 75 asked to stop by a scheduler, or a process was lost;
130 Ctrl-C.
"""

import argparse
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.core import InputError, LostProcess
from papers.machinery.command import SHARED_DATA, PapersParser, tell

if TYPE_CHECKING:
    from papers.machinery.artifact import Artifact, Rendered, Scale
    from papers.machinery.data_registry import DataRegistry
    from papers.machinery.job import PaperJob
    from papers.machinery.store import JobStore

    JobsByArtifact = dict[tuple[str, str], list[PaperJob]]

SCALES = ("smoke", "cpu", "paper")

_COMMANDS = {
    "bench": "papers.bench",
    "encoder": "papers.encoder",
    "gpu": "papers.gpu",
    "starts": "papers.starts",
    "text": "papers.text_command",
}

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


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; bad input is one line on stderr."""
    # as isotrope's own command line sets them: its cli/main.py says why
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # the reader of our output has gone (`| head`): nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, LostProcess, OSError) as error:
        print(f"papers: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 75 if isinstance(error, LostProcess) else 2
    except KeyboardInterrupt:
        print("papers: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def run(arguments: Sequence[str]) -> int:
    """Parse, run the missing jobs, print tables and verdicts."""
    if arguments and arguments[0] in _COMMANDS:
        return int(importlib.import_module(_COMMANDS[arguments[0]]).run(arguments[1:]))
    options = _parse(arguments)
    from papers.machinery.catalogue import artifacts, find_artifacts

    if not options.paper and not options.all:
        return _list(artifacts(), as_json=options.json)
    chosen = artifacts() if options.all else find_artifacts(options.paper, options.names)
    from papers.machinery.data_registry import DataRegistry

    data = options.data or (SHARED_DATA if SHARED_DATA.is_dir() else None)
    if data is not None and not data.is_dir():
        raise InputError(f"--data: there is no folder {data}")
    sources = DataRegistry(data, options.output / "data", hub=not options.dry_run)
    jobs = {(a.paper, a.name): list(dict.fromkeys(a.jobs(options.scale))) for a in chosen}
    if options.dry_run:
        return _dry_run(options, chosen, jobs, sources)
    return _measure(options, chosen, jobs, sources)


def _list(artifacts: "Sequence[Artifact]", *, as_json: bool) -> int:
    if as_json:
        rows = [
            {"paper": artifact.paper, "name": artifact.name, "title": artifact.title}
            for artifact in artifacts
        ]
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    width = max(len(artifact.name) for artifact in artifacts)
    for artifact in artifacts:
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
    add("--json", action="store_true", help="print JSON and nothing else")
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


def _dry_run(
    options: argparse.Namespace,
    chosen: "Sequence[Artifact]",
    jobs: "JobsByArtifact",
    sources: "DataRegistry",
) -> int:
    rows, needed = [], dict[str, None]()
    for artifact in chosen:
        own_jobs = jobs[artifact.paper, artifact.name]
        missing = _missing(artifact, own_jobs, sources)
        rows.append((artifact, len(own_jobs), missing))
        needed |= dict.fromkeys(missing)
    count_of_jobs = len({job for own_jobs in jobs.values() for job in own_jobs})
    if options.json:
        report = [
            {"paper": artifact_.paper, "name": artifact_.name, "cells": count, "not here": missing}
            for artifact_, count, missing in rows
        ]
        print(json.dumps(report, ensure_ascii=False))
        return 0
    width = max(len(artifact_.name) for artifact_ in chosen)
    for artifact_, count, missing in rows:
        word = "ready" if not missing else f"needs what is not here: {len(missing)}"
        print(f"{artifact_.paper:<17} {artifact_.name:<{width}} {count:>4} jobs, {word}")
    print(f"{count_of_jobs} different jobs; every name in them resolves")
    for line in needed:
        print(f"not here: {line}")
    return 0


def _missing(
    artifact: "Artifact", jobs: "Sequence[PaperJob]", sources: "DataRegistry"
) -> list[str]:
    from papers.machinery.runner import missing_data

    try:
        missing_by_job = missing_data(jobs, sources)
    except InputError as error:
        raise InputError(f"{artifact.paper} {artifact.name}: {error}") from error
    return list(dict.fromkeys(line for lines in missing_by_job.values() for line in lines))


def _measure(
    options: argparse.Namespace,
    chosen: "Sequence[Artifact]",
    jobs: "JobsByArtifact",
    sources: "DataRegistry",
) -> int:
    from isotrope.core import atomic_replace, format_duration
    from papers.machinery import pages, runner
    from papers.machinery.store import JobStore

    start = time.monotonic()
    store = JobStore(options.output / "cells")
    failed: dict[PaperJob, str] = {}
    if not options.show:
        failed = runner.run(
            _by_seed(_measurable(chosen, jobs, sources, store, skip=options.skip_missing)),
            store,
            sources,
            options.output / "runs",
            processes=options.jobs,
            minutes=options.minutes,
            tell=tell,
        )
    all_rendered: list[tuple[Artifact, Rendered]] = []
    reports = []
    for artifact in chosen:
        rendered, about = _render(
            artifact, jobs[artifact.paper, artifact.name], options.scale, store
        )
        files = [str(file) for file in pages.write(artifact, rendered, about, options.output)]
        all_rendered.append((artifact, rendered))
        if options.json:
            reports.append({**pages.as_json(artifact, rendered, about), "files": files})
        else:
            print(pages.as_text(artifact, rendered), *files, sep="\n", end="\n\n", flush=True)
    if options.all:
        with atomic_replace(options.output / "verdicts.md") as temporary:
            temporary.write_text(pages.summary(all_rendered, options.scale), encoding="utf-8")
    if options.json:
        print(json.dumps(reports, ensure_ascii=False, allow_nan=False))
    else:
        print(f"{len(chosen)} tables and figures in {format_duration(time.monotonic() - start)}")
    if failed:
        job, why = next(iter(failed.items()))
        raise InputError(f"{len(failed)} jobs failed, the others are kept; {job.label}: {why}")
    return 0


def _render(
    artifact: "Artifact", jobs: "Sequence[PaperJob]", scale: "Scale", store: "JobStore"
) -> "tuple[Rendered, dict[str, str]]":
    """The present results of a table or figure, and their provenance."""
    from papers.machinery import pages
    from papers.machinery.artifact import Results

    results = Results({c: r for c in jobs if (r := store.find(c)) is not None})
    rendered = pages.render(artifact, scale, results)
    return rendered, pages.provenance_of(artifact, scale, results, len(jobs))


def _measurable(
    chosen: "Sequence[Artifact]",
    jobs: "JobsByArtifact",
    sources: "DataRegistry",
    store: "JobStore",
    *,
    skip: bool,
) -> "list[PaperJob]":
    """Return the jobs that can be measured here; refuse if others cannot, or leave them out."""
    from papers.machinery.runner import missing_data

    missing: dict[str, None] = {}
    measurable: dict[PaperJob, None] = {}
    for artifact in chosen:
        own_jobs = jobs[artifact.paper, artifact.name]
        lines = _missing(artifact, [job for job in own_jobs if store.find(job) is None], sources)
        missing |= dict.fromkeys(lines)
        if skip and lines:
            lacked = missing_data(own_jobs, sources)
            own_jobs = [job for job in own_jobs if store.find(job) is not None or not lacked[job]]
        measurable |= dict.fromkeys(own_jobs)
    if missing and not skip:
        raise InputError(
            f"not on this machine: {'; '.join(missing)}. --dry-run says what each table needs, "
            "--show prints what there is, --skip-missing measures the rest, --scale smoke needs "
            "no data"
        )
    for line in missing:
        print(f"left out: {line}", file=sys.stderr)
    return list(measurable)


def _by_seed(jobs: "Iterable[PaperJob]") -> "list[PaperJob]":
    """The first seed of everything before the second."""
    return sorted(jobs, key=lambda job: job.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
