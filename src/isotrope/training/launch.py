"""Starts several processes on this machine, watches them, and ends them together.

:func:`launch` runs one training in several processes (ranks), with the environment variables that
torchrun would set. For several machines, use torchrun itself. :func:`each` runs many tasks, several
at a time. A process of ``each`` has an equal share of the cores, and one GPU.

The parent process receives Ctrl-C and SIGTERM and passes them on, so that a training leaves a
checkpoint. If the parent process dies, the processes that it started write a checkpoint and end.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, NoReturn, TypeVar

from isotrope.core.errors import InputError, LostProcess

T = TypeVar("T")
R = TypeVar("R")
Task = Callable[[T], R]
Done = Generator[tuple[T, R | InputError], None, None]
Answer = tuple[str, Any]
"""Status and value of a task. ``gone``: it lost another process; ``lost``: its process ended;
``machine``: the disk or the memory was full, for example."""

REQUEUE = 75  # EX_TEMPFAIL, which schedulers read as "run me again"
STOPS = (signal.SIGINT, signal.SIGTERM)
CODES: dict[int | None, int] = {None: 0, signal.SIGINT: 130, signal.SIGTERM: REQUEUE}  # 128 + 2
"""The exit code of a run that a signal has stopped, by its number."""
_HANGS = 20.0  # seconds for the other ranks to end by themselves after one has failed
GRACE = 30.0  # seconds for a process to write a checkpoint and end
_TURN = 1.0  # seconds of one wait: a signal just before a wait is handled only after it
_LAUNCHER = "ISOTROPE_LAUNCHER"
_GOES_ON = "finished work is saved; run the same command again to continue"
_STOPPED = f"stopped on request; {_GOES_ON}"


class Terminated(BaseException):
    """Raised at SIGTERM, unless another handler is installed."""


def interrupt(number: int, frame: FrameType | None = None) -> NoReturn:
    """Stop the program: raise KeyboardInterrupt after Ctrl-C, and Terminated after SIGTERM."""
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


@contextmanager
def handling(
    react: Callable[[int, FrameType | None], None], numbers: Iterable[signal.Signals] = STOPS
) -> Iterator[None]:
    """Call ``react`` at Ctrl-C and SIGTERM; restore the previous handlers on exit.

    Outside the main thread, nothing is done, because signals reach only the main thread.
    """
    before: dict[signal.Signals, Any] = {}
    try:
        for number in numbers:
            with suppress(ValueError):  # not the main thread
                before[number] = signal.signal(number, react)
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def launched() -> bool:
    """Return whether :func:`launch` started this process, and the parent process still runs."""
    return os.environ.get(_LAUNCHER) == str(os.getppid())


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus() -> list[str]:
    """Return the GPUs that this process may use, as strings for CUDA_VISIBLE_DEVICES."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return visible.split(",")[:count] if visible else [str(place) for place in range(count)]


def _environment(processes: int) -> dict[str, str]:
    """Return the environment variables of one of ``processes``, with its share of the cores."""
    return {
        "OMP_NUM_THREADS": str(max(1, cores() // processes)),
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        **os.environ,  # the user's values take precedence
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }


class _Worker:
    """A process that runs one task after another, and whether it is busy."""

    def __init__(self, environment: Mapping[str, str], visible: str = "everything") -> None:
        self.pipe, remote = Pipe()
        hidden = subprocess.DEVNULL
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # the worker unblocks them
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "isotrope.training.worker", str(remote.fileno())],
                env=environment,
                stdin=subprocess.PIPE,  # is closed when this process ends
                stdout=None if visible == "everything" else hidden,
                stderr=hidden if visible == "nothing" else None,
                pass_fds=[remote.fileno()],
                start_new_session=True,  # Ctrl-C reaches only the parent, which passes it on
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            remote.close()
        self.busy = False

    def begin(self, task: Task[T, R], item: T, requests: list[int]) -> None:
        """Start a task; the function and its argument must be picklable."""
        self.busy = True
        with suppress(BrokenPipeError):  # ``answer`` finds a dead process
            self.pipe.send_bytes(pickle.dumps((sys.argv, task, item)))
        if requests:  # a request to stop came before the process was busy
            self.ask(requests[0])

    def answer(self) -> Answer:
        """Wait for the status and value of the task."""
        self.busy = False
        try:
            kind, value = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - our own process
        except (EOFError, OSError):
            return "lost", self.process.wait()
        return kind, value

    def ask(self, number: int) -> None:
        """Ask a busy process to stop; an idle one ends when its pipe is closed."""
        if self.busy:
            self.process.send_signal(number)

    def close(self, patience: float) -> None:
        """End the process; kill it if it does not end within ``patience`` seconds."""
        self.pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self.process.kill()  # no effect if it has ended
        self.process.communicate()


def _check_platform() -> None:
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        raise InputError("use one process, or WSL: isotrope starts no other processes on Windows")


@contextmanager
def _together() -> Iterator[tuple[list[_Worker], list[int]]]:
    """Yield a list for processes that end together, and a list of received stop requests."""
    workers: list[_Worker] = []
    requests: list[int] = []

    def react(number: int, frame: FrameType | None) -> None:
        requests.append(number)
        if requests.count(signal.SIGINT) > 1:
            raise KeyboardInterrupt
        for worker in workers:
            worker.ask(number)

    with handling(react):
        try:
            yield workers, requests
        finally:
            for worker in workers:
                worker.ask(signal.SIGTERM)
            for worker in workers:
                worker.close(0.0 if requests.count(signal.SIGINT) > 1 else GRACE)


# the ranks of one training


def launch(devices: int, task: Task[T, tuple[int, R]], item: T) -> tuple[int, R | None]:
    """Run a task in several processes, the ranks of one training.

    Ctrl-C and SIGTERM are passed to all processes. If one process fails, the others are ended.

    Args:
        devices: Number of processes.
        task: Picklable function to run in each process. It gets ``item``, and returns a tuple of an
            exit code and a result.
        item: Picklable argument of the task.

    Returns:
        A tuple of an exit code and the result of the first process. The exit code is 0 if all
        processes finished, 130 after Ctrl-C, and 75 after SIGTERM. The result is None if the first
        process was stopped before it had a result.
    """
    _check_platform()
    from torch.distributed.elastic.utils.distributed import create_c10d_store

    # the processes connect to this store, so that no other program can take its port before them
    store = create_c10d_store(True, "127.0.0.1", 0, wait_for_workers=False)
    with _together() as (workers, requests):
        for rank in range(devices):
            environment = {
                **_environment(devices),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(devices),
                "LOCAL_WORLD_SIZE": str(devices),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                _LAUNCHER: str(os.getpid()),
            }
            workers.append(_Worker(environment, "nothing" if rank else "errors"))
            workers[-1].begin(task, item, requests)
        answers = _answers(workers)
    kind, value = answers.get(0, ("lost", None))
    return _verdict(answers, devices), value[1] if kind == "done" else None


def _answers(workers: list[_Worker]) -> dict[int, Answer]:
    """Return the status and value of each task, in the order in which the tasks ended.

    A task that does not end after another has failed is killed and has no value.
    """
    answers: dict[int, Answer] = {}
    until: float | None = None
    while busy := [worker for worker in workers if worker.busy]:
        ready = wait([worker.pipe for worker in busy], _TURN)
        if until is not None and not ready and time.monotonic() > until:
            for worker in busy:
                worker.busy = False
                worker.process.kill()
        for worker in [worker for worker in busy if worker.pipe in ready]:
            kind, _ = answers[workers.index(worker)] = worker.answer()
            worker.pipe.close()  # its process ends, and the other ranks lose the connection
            if kind not in ("done", "stopped") and until is None:
                until = time.monotonic() + _HANGS
    return answers


def _verdict(answers: Mapping[int, Answer], devices: int) -> int:
    """Return the exit code of all ranks, or raise the error that ended them first."""
    first: dict[str, tuple[int, Any]] = {}
    for rank, (kind, value) in answers.items():
        first.setdefault(kind, (rank, value))
    if "failed" in first:
        raise first["failed"][1]
    codes = {value[0] for kind, value in answers.values() if kind == "done"}
    codes |= {CODES[value] for kind, value in answers.values() if kind == "stopped"}
    for code in filter(None, CODES.values()):
        if code in codes:
            return code
    if "lost" in first:
        rank, code = first["lost"]
        how = _killed(code) or f"ended with exit code {code}"
        raise LostProcess(f"process {rank} of {devices} {how}")
    for kind in ("machine", "bug", "gone"):
        if kind in first:
            raise _failure(kind, first[kind][1], f"one of {devices} processes")
    return 0


def _killed(code: int, remedy: str = "") -> str | None:
    """Return a message if the exit code shows that a process was killed."""
    if code >= 0:
        return None
    name = signal.Signals(-code).name
    memory = f", often for lack of memory{remedy}" if name == "SIGKILL" else ""
    return f"was killed ({name}{memory})"


# many tasks, several at a time


def each(task: Task[T, R], items: Iterable[T], jobs: int) -> Done[T, R]:
    """Yield tuples (item, result of the task), in the order in which the tasks finish.

    The next item is taken when a process is free and all finished results have been yielded, so
    ``items`` may be a generator that depends on the results. If a task raises an InputError, the
    error is yielded as the result. After any other error, no more tasks start, and running tasks
    finish. The results of these tasks are yielded, and then the error is raised. Ctrl-C and SIGTERM
    also ask running tasks to stop.

    Args:
        task: Picklable function of an importable module.
        items: Arguments of the task, one for each call; they must be picklable.
        jobs: Number of processes. With 1, the tasks run in this process.
    """
    if jobs > 1:
        _check_platform()
    yield from _here(task, items) if jobs == 1 else _beside(task, items, jobs)


def _end(requests: list[int]) -> None:
    """Raise the exception of the first request to stop."""
    if requests:
        raise KeyboardInterrupt if requests[0] == signal.SIGINT else LostProcess(_STOPPED)


def _here(task: Task[T, R], items: Iterable[T]) -> Done[T, R]:
    busy, requests = False, list[int]()

    def react(number: int, frame: FrameType | None) -> None:
        requests.append(number)
        if busy:
            interrupt(number)

    with handling(react):
        for item in items:
            _end(requests)
            result: R | InputError
            try:
                busy = True
                result = task(item)
            except InputError as error:
                result = error
            except Terminated:
                raise LostProcess(_STOPPED) from None
            finally:
                busy = False
            yield item, result
        _end(requests)


def _beside(task: Task[T, R], items: Iterable[T], jobs: int) -> Done[T, R]:
    waiting, running = iter(items), dict[_Worker, T]()
    failure: Exception | None = None
    with _together() as (workers, requests):
        while True:
            while failure is None and not requests and len(running) < jobs:
                try:
                    item = next(waiting)
                except StopIteration:
                    break
                worker = next((w for w in workers if w not in running), None)
                if worker is None:
                    worker = _Worker(_share(len(workers), jobs))
                    workers.append(worker)
                running[worker] = item
                worker.begin(task, item, requests)
            if not running:
                break
            ready = wait([worker.pipe for worker in running], _TURN)
            for worker in [w for w in running if w.pipe in ready]:
                item = running.pop(worker)
                kind, value = worker.answer()
                if kind in ("done", "failed"):
                    yield item, value
                    continue
                workers.remove(worker)
                worker.close(GRACE)
                failure = failure or _failure(kind, value)
        _end(requests)
        if failure is not None:
            raise failure


def _share(place: int, jobs: int) -> dict[str, str]:
    """Return the environment variables of a process: its share of the cores, and one GPU."""
    devices = gpus()
    gpu = {"CUDA_VISIBLE_DEVICES": devices[place % len(devices)]} if devices else {}
    return {**_environment(jobs), **gpu}


def _failure(kind: str, value: int | str | Exception, who: str = "a process") -> Exception:
    """Return the error of a process with an error, exit code, message or traceback ``value``."""
    if isinstance(value, Exception):
        return value
    if kind == "bug":
        return RuntimeError(f"{who} failed:\n{value}")
    if kind == "gone":
        return LostProcess(value)
    how = _killed(value, ": try fewer `--jobs`") if isinstance(value, int) else None
    return LostProcess(f"a process {how or 'ended unexpectedly'}; {_GOES_ON}")
