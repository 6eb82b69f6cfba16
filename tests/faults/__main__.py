"""``make faults``: kill runs, fail their writes, contend for their folders, soak; print figures.

What has been done stands in ``figures.json`` in the output folder and is not done again.
"""

import argparse
import dataclasses
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.folders import contend
from tests.faults.kills import kill_points
from tests.faults.scheduler import requeue
from tests.faults.soak import soak
from tests.faults.trials import (
    CONFIGURATIONS,
    ROOT,
    TOGETHER,
    Server,
    Whole,
    command,
    environment,
    make_whole,
    write_corpus,
)
from tests.faults.workers import RANK, WORKER, kill_child
from tests.faults.writes import Failed, faults_of, full_disk, interrupt

_WRITES = ("text, dev score", "text, all kept", "mocov2")
_SHARES = (0.02, 0.2, 0.4, 0.6)  # of the room that a run needs
_CONTENDED = ("text", "byol")
_STOPPED = ("text, dev score", "byol")
_WORKER = "simclr, a worker"
_SOAK = {"batch-size": 4, "log-every": 5, "eval-every": 200, "checkpoint-every": 200}

Figures = dict[str, Any]


class Bench:
    """The servers, the uninterrupted runs, and the figures so far.

    Args:
        output: folder of the figures.
        work: folder of the runs.
    """

    def __init__(self, output: Path, work: Path) -> None:
        self._file = output / "figures.json"
        self.work, self.corpus = work, work / "corpus"
        self.figures: dict[str, Figures] = {}
        if self._file.is_file():
            self.figures = json.loads(self._file.read_text())
        write_corpus(self.corpus)
        self._servers: dict[int, Server] = {}
        self._wholes: dict[str, Whole] = {}

    def server(self, number: int = 1) -> Server:
        """Return a server; all uninterrupted runs are those of the first."""
        if number not in self._servers:
            self._servers[number] = Server(number, self.work / f"log-{number}")
        return self._servers[number]

    def whole(self, name: str) -> Whole:
        """Return the uninterrupted run of a configuration."""
        if name not in self._wholes:
            folder = self.work / "whole" / name
            self._wholes[name] = make_whole(self.server(), name, self.corpus, folder)
        return self._wholes[name]

    def figure(self, name: str, measure: Callable[[], Figures]) -> None:
        """Keep a figure, if it is not there; a failure is told, and the rest goes on."""
        if name in self.figures:
            return
        try:
            self.figures[name] = measure()
        except AssertionError as error:
            print(f"FAILED: {name}: {error}\n", flush=True)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.figures, indent=1) + "\n")
        print(f"{name}: {self.figures[name]}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()


def _kills(bench: Bench, name: str, count: int) -> Figures:
    folder = bench.work / "kills" / name
    found = kill_points(bench.server(2), bench.whole(name), bench.corpus, folder, count=count)
    return {**found.kills, "runs": found.runs, "cpu": round(found.cpu)}


def _writes(bench: Bench, name: str) -> Figures:
    whole, found, failures = bench.whole(name), Failed(), []
    for number, fault in enumerate(faults_of(whole)):
        folder = bench.work / "writes" / name / str(number)
        try:
            found.add(interrupt(bench.server(2), whole, bench.corpus, folder, fault))
        except AssertionError as error:
            failures.append(str(error))
    for share in _SHARES:
        folder = bench.work / "disk" / name / str(share)
        done = full_disk(bench.server(2), whole, bench.corpus, folder, share=share)
        if done is not None:
            found.add(done)
    assert not failures, f"{len(failures)} failures\n" + "\n\n".join(failures)
    return {"calls": len(whole.calls), **dataclasses.asdict(found), "cpu": round(found.cpu)}


def _folders(bench: Bench, name: str, count: int) -> Figures:
    servers = bench.server(1), bench.server(2)
    for number in range(count):
        folder = bench.work / "folders" / name / str(number)
        contend(servers, bench.whole(name), bench.corpus, folder)
    return {"contended": count}


def _stops(bench: Bench, name: str, count: int) -> Figures:
    folder = bench.work / "stops" / name
    whole, server = bench.whole(name), bench.server(2)
    runs = [requeue(server, whole, bench.corpus, folder / str(n)) for n in range(count)]
    return {"runs": count, "stopped": sum(runs)}


def _workers(bench: Bench, count: int) -> Figures:
    for number in range(count):
        folder = bench.work / "workers" / str(number)
        whole = bench.whole(_WORKER)
        kill_child(bench.server(2), whole, bench.corpus, folder, number=0, said=WORKER)
    return {"killed": count}


def _ranks(bench: Bench) -> Figures:
    for number in range(2):
        folder = bench.work / "ranks" / str(number)
        whole = bench.whole(TOGETHER)
        kill_child(bench.server(2), whole, bench.corpus, folder, number=number, said=RANK)
    return {"killed": 2}


def _soak(bench: Bench, steps: int) -> Figures:
    output = bench.work / "soak"
    arguments = command("text, dev score", bench.corpus, output, **_SOAK, **{"max-steps": steps})
    found = soak(arguments, output, steps=steps)
    figures = {**dataclasses.asdict(found), "growth": found.growth}
    assert found.flat, figures
    return figures


def _inputs() -> Figures:
    asked = [sys.executable, "-m", "tests.inputs"]
    done = subprocess.run(asked, capture_output=True, text=True, env=environment(), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()[-1]
    found = re.match(r"(\d+) bad inputs", told)
    assert found is not None, told
    return {"tried": int(found[1]), "told": told}


def _table(figures: dict[str, Figures]) -> str:
    """Return the figures as docs/reliability.md has them."""

    def of(kind: str) -> dict[str, Figures]:
        return {k.partition(": ")[2]: v for k, v in figures.items() if k.startswith(f"{kind}: ")}

    hows = ("moment", "call", "native")
    kills, lines = of("kills"), []
    lines += ["| killed and resumed | any moment | at a call | native write | runs |"]
    lines += ["|---|--:|--:|--:|--:|"]
    for name, found in kills.items():
        cells = [name, *(found[how] for how in hows), found["runs"]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    sums = [sum(found[key] for found in kills.values()) for key in (*hows, "runs")]
    lines += [f"| together: {sum(sums[:3])} kill points | {' | '.join(map(str, sums))} |", ""]
    lines += ["| a write fails | which | refused, then resumed | harmless |", "|---|---|--:|--:|"]
    for name, found in of("writes").items():
        which = ", ".join(f"{count} {error}" for error, count in found["errors"].items())
        lines.append(f"| {name} | {which} | {found['refused']} | {found['harmless']} |")
    total = sum(found["refused"] + found["harmless"] for found in of("writes").values())
    lines += [f"| together: {total} failed writes | | | |", ""]
    folders = sum(found["contended"] for found in of("folders").values())
    lines.append(f"- folders that two runs wanted at once: {folders}, one of the two refused each")
    stops = of("stops").values()
    runs, ended = (sum(found[key] for found in stops) for key in ("runs", "stopped"))
    lines.append(
        f"- runs ended by SIGTERM: {runs}, together {ended} times, all resumed to the same end"
    )
    for name, what in (("workers", "data-loader workers"), ("ranks", "ranks")):
        if name in figures:
            lines.append(f"- {what} killed: {figures[name]['killed']}, all resumed")
    if "soak" in figures:
        found = figures["soak"]
        lines.append(
            f"- soak: {found['steps']:,} steps in {found['seconds'] / 60:.0f} minutes; memory "
            f"{found['early']:.1f} MiB at a tenth, {found['late']:.1f} MiB at the end "
            f"({found['growth']:+.2%}), {found['most']:.1f} MiB at most; open files "
            f"{found['files'][0]}, then {found['files'][1]}"
        )
    if "inputs" in figures:
        lines.append(f"- bad inputs tried: {figures['inputs']['tried']}, all refused")
    return "\n".join(lines)


def _machine() -> str:
    from importlib.metadata import version

    names = ("torch", "accelerate", "transformers")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, {versions}"
    )


def main() -> int:
    """Measure what is missing, print all; return 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("faults"), help="of figures.json")
    parser.add_argument("--kills", type=int, default=16, help="of each configuration")
    parser.add_argument("--folders", type=int, default=10, help="contended, of each configuration")
    parser.add_argument("--steps", type=int, default=20_000, help="of the soak")
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="isotrope-faults-"))
    bench = Bench(given.output, work)
    measures: dict[str, Callable[[], Figures]] = {
        **{f"kills: {n}": partial(_kills, bench, n, given.kills) for n in CONFIGURATIONS},
        **{f"writes: {n}": partial(_writes, bench, n) for n in _WRITES},
        **{f"folders: {n}": partial(_folders, bench, n, given.folders) for n in _CONTENDED},
        **{f"stops: {n}": partial(_stops, bench, n, 8) for n in _STOPPED},
        "workers": partial(_workers, bench, 3),
        "ranks": partial(_ranks, bench),
        "soak": partial(_soak, bench, given.steps),
        "inputs": _inputs,
    }
    try:
        for name, measure in measures.items():
            bench.figure(name, measure)
    finally:
        bench.close()
    print(f"{_machine()}\n\n{_table(bench.figures)}")
    missing = [name for name in measures if name not in bench.figures]
    if missing:
        print(f"\nFAILED: {', '.join(missing)}; what is left of them is in {work}")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
