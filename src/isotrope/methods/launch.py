"""Several processes on this machine: start them, watch them, end them together.

Each process is ``python -m isotrope.methods.rank FOLDER`` with the environment that torchrun would
give it, so that under torchrun (which several machines need) the same code runs without this file.
The folder is a temporary one: ``run.json`` says what to do, and each process leaves there what
came of it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from isotrope.core.errors import Diverged, InputError, LostProcess
from isotrope.core.result import Result

__all__ = ["REQUEUE", "cores", "launch", "launched"]

_GRACE = 20.0  # seconds for the others to end by themselves when one has failed
REQUEUE = 75  # EX_TEMPFAIL: schedulers take it as "run me again"
_LAUNCHER = "ISOTROPE_LAUNCHER"
_ASKED = {signal.SIGINT: 128 + signal.SIGINT, signal.SIGTERM: REQUEUE}


def launch(devices: int, run: Mapping[str, Any]) -> tuple[int, Result | None]:
    """Run ``isotrope.methods.rank`` in several processes.

    Ctrl-C and SIGTERM go to all of them, and a process that fails ends the others.

    Args:
        devices: how many.
        run: what rank.py reads: kind, settings, resume, lines, command.

    Returns:
        Exit code: 0 where all finished, 130 or 75 where they were asked to stop; and the result
        of the first process, if it came that far.

    Raises:
        InputError: what the processes found wrong.
        LostProcess: one of them was killed.
        RuntimeError: one of them failed; the message ends in its traceback.
        KeyboardInterrupt: Ctrl-C twice.
    """
    with tempfile.TemporaryDirectory(prefix="isotrope-") as name, ExitStack() as ended:
        folder = Path(name)
        (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
        started = _start(devices, folder, ended)
        with _forwarded(started) as asked:
            codes = _watch(started)
        if asked.count(signal.SIGINT) > 1:
            raise KeyboardInterrupt
        code = _verdict(codes, _reports(folder), asked)
        found = folder / "result.json"
        return code, Result.load(found) if found.is_file() else None


def _start(devices: int, folder: Path, ended: ExitStack) -> "list[subprocess.Popen[bytes]]":
    """Start the processes; they are killed where ``ended`` ends before them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(devices):
        environment = {
            # each has its share of the cores; what the user has set goes first
            "OMP_NUM_THREADS": str(max(1, cores() // devices)),
            "OMP_WAIT_POLICY": "PASSIVE",
            "TOKENIZERS_PARALLELISM": "false",
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(devices),
            "LOCAL_WORLD_SIZE": str(devices),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            _LAUNCHER: str(os.getpid()),
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "isotrope.methods.rank", str(folder)],
            env=environment,
            stdin=subprocess.PIPE,  # its end tells the process that we are gone
            stdout=subprocess.DEVNULL,
            stderr=None if rank == 0 else subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C comes through us, once
        )
        ended.callback(_end, process)
        started.append(process)
    return started


def launched() -> bool:
    """Return whether this process was started by :func:`launch`, which is still there."""
    return os.environ.get(_LAUNCHER) == str(os.getppid())


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


@contextmanager
def _forwarded(started: "list[subprocess.Popen[bytes]]") -> Iterator[list[int]]:
    """Send Ctrl-C and SIGTERM on to the processes; yield the list of those that came."""
    asked: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for process in started:
            process.send_signal(number)

    before: dict[int, Any] = {}
    try:
        for number in _ASKED:
            try:
                before[number] = signal.signal(number, forward)
            except ValueError:  # not the main thread: whoever runs us handles signals
                break
        yield asked
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)


def _watch(started: "list[subprocess.Popen[bytes]]") -> list[int]:
    """Return the exit codes of all; 0 for those that do not end although another has failed."""
    until: float | None = None
    while None in (codes := [process.poll() for process in started]):
        failed = any(code not in (None, 0, *_ASKED.values()) for code in codes)
        if failed and until is None:
            until = time.monotonic() + _GRACE
        if until is not None and time.monotonic() > until:
            return [0 if code is None else code for code in codes]
        time.sleep(0.05)
    return [code for code in codes if code is not None]


def _reports(folder: Path) -> list[dict[str, str]]:
    """Return what the processes that failed say of it, the first to fail first."""
    files = sorted(folder.glob("error-*.json"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _verdict(codes: list[int], reports: list[dict[str, str]], asked: list[int]) -> int:
    """Return the exit code of all, or raise what ended them; consequences come last."""
    said = {report["kind"]: report["message"] for report in reversed(reports)}
    if "input" in said:
        raise InputError(said["input"])
    if "diverged" in said:
        raise Diverged(said["diverged"])
    for stop, answer in _ASKED.items():
        if answer in codes or (stop in asked and -stop in codes):
            return answer
    for rank, code in enumerate(codes):
        if code < 0:
            name = signal.Signals(-code).name
            memory = ", often for want of memory" if name == "SIGKILL" else ""
            raise LostProcess(f"process {rank} of {len(codes)} was killed ({name}{memory})")
    if "bug" in said:
        raise RuntimeError(f"one of {len(codes)} processes failed:\n{said['bug']}")
    for rank, code in enumerate(codes):
        if code:
            raise LostProcess(f"process {rank} of {len(codes)} ended with exit code {code}")
    return 0
