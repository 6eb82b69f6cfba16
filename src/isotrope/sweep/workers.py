"""Workers: one task after the other here, or several at a time in processes that end together.

Each process has its share of the cores and, where there are GPUs, one of them. Ctrl-C and SIGTERM
come to the first process, which asks the others once: a training leaves a checkpoint then. A
process whose first process is gone ends by itself, in the same way.
"""

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, TypeVar

from isotrope.core.errors import InputError, LostProcess

__all__ = ["each", "gpus"]

T = TypeVar("T")
R = TypeVar("R")
Task = Callable[[T], R]
Done = Generator[tuple[T, R | InputError], None, None]

_GRACE = 30.0  # seconds for a process to leave a checkpoint
_STOPPED = "asked to stop; what was finished is kept, and the same command goes on where it stopped"


def each(task: Task[T, R], items: Iterable[T], jobs: int) -> Done[T, R]:
    """Yield every item with what the task made of it, in the order in which they finish.

    An item is taken only when a process is free, and after everything that is finished has been
    yielded: ``items`` may be a generator that waits for results, or that stops early. An
    InputError of a task is yielded. After any other error, and after a request to stop, no task
    is started any more; those that are running go on, or are asked to stop, and what they finish
    is yielded before the error is raised.

    Args:
        task: a function that can be pickled.
        items: likewise.
        jobs: 1 runs in this process; more are processes of their own.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        LostProcess: SIGTERM, or a process was killed.
        RuntimeError: a task in another process failed; the message ends in its traceback.
    """
    yield from _here(task, items) if jobs == 1 else _beside(task, items, jobs)


class _Terminated(BaseException):
    """SIGTERM while a task is running."""


@contextmanager
def _signals(react: Callable[[list[int]], None]) -> Iterator[list[int]]:
    """Call ``react`` at Ctrl-C and SIGTERM with all that came so far; yield their list."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        react(asked)

    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # not the main thread: whoever runs us handles signals
                before[number] = signal.signal(number, note)
        yield asked
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)


def _end(asked: list[int]) -> None:
    """Raise what the first request to stop stands for."""
    if asked:
        raise KeyboardInterrupt if asked[0] == signal.SIGINT else LostProcess(_STOPPED)


def _stop(number: int) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else _Terminated


def _here(task: Task[T, R], items: Iterable[T]) -> Done[T, R]:
    busy = False

    def react(asked: list[int]) -> None:
        if busy:
            _stop(asked[-1])

    with _signals(react) as asked:
        for item in items:
            _end(asked)
            found: R | InputError
            try:
                busy = True
                found = task(item)
            except InputError as error:
                found = error
            except _Terminated:
                raise LostProcess(_STOPPED) from None
            finally:
                busy = False
            yield item, found
        _end(asked)


class _Worker:
    """A process, and what it is doing."""

    def __init__(self, environment: dict[str, str]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        watched, self._alive = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(theirs, watched, environment))
        blocked = {signal.SIGINT, signal.SIGTERM}  # until it has handlers of its own
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        watched.close()
        self.busy = False

    def begin(self, task: Task[T, R], item: T) -> None:
        self.busy = True
        with suppress(BrokenPipeError):  # it is gone; that shows where its answer is awaited
            self.pipe.send_bytes(pickle.dumps((task, item)))

    def answer(self) -> tuple[str, Any]:
        """Return what came of the item: done, failed, bug, stopped or lost, and a value."""
        self.busy = False
        try:
            kind, value = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - our own process
        except (EOFError, OSError):
            self.process.join()
            return "lost", self.process.exitcode
        return kind, value

    def ask(self, number: int) -> None:
        """Ask it to stop; it finishes if it is doing nothing."""
        if self.busy and self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)

    def close(self, patience: float) -> None:
        """End it: by itself where that takes less than so many seconds."""
        self.pipe.close()
        self.process.join(patience)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self._alive.close()


def _beside(task: Task[T, R], items: Iterable[T], jobs: int) -> Done[T, R]:
    waiting, workers = iter(items), list[_Worker]()
    running: dict[_Worker, T] = {}
    failure: Exception | None = None

    def react(asked: list[int]) -> None:
        if asked.count(signal.SIGINT) > 1:
            raise KeyboardInterrupt  # a second Ctrl-C: at once
        for worker in workers:
            worker.ask(asked[-1])

    with _signals(react) as asked:
        try:
            while True:
                while failure is None and not asked and len(running) < jobs:
                    try:
                        item = next(waiting)
                    except StopIteration:
                        break
                    worker = next((w for w in workers if w not in running), None)
                    if worker is None:
                        worker = _Worker(_share(len(workers), jobs))
                        workers.append(worker)
                    running[worker] = item
                    worker.begin(task, item)
                    if asked:  # after it was started, and before it could be asked
                        worker.ask(asked[0])
                if not running:
                    break
                ready = wait([worker.pipe for worker in running])
                for worker in [w for w in running if w.pipe in ready]:
                    item = running.pop(worker)
                    kind, value = worker.answer()
                    if kind in ("done", "failed"):
                        yield item, InputError(value) if kind == "failed" else value
                        continue
                    workers.remove(worker)
                    worker.close(_GRACE)
                    failure = failure or _failure(kind, value)
            _end(asked)
            if failure is not None:
                raise failure
        finally:
            for worker in workers:
                worker.ask(signal.SIGTERM)
            for worker in workers:
                worker.close(0.0 if len(asked) > 1 else _GRACE)


def _failure(kind: str, value: Any) -> Exception:  # noqa: ANN401 - an exit code or a traceback
    if kind == "bug":
        return RuntimeError(f"a process failed:\n{value}")
    if kind == "lost" and value is not None and value < 0:
        name = signal.Signals(-value).name
        memory = ", often for want of memory: try fewer --jobs" if name == "SIGKILL" else ""
        return LostProcess(
            f"a process was killed ({name}{memory}); what was finished is kept, and the same "
            "command goes on"
        )
    return LostProcess(
        "a process has ended without being asked to; what was finished is kept, and the same "
        "command goes on"
    )


def _share(place: int, jobs: int) -> dict[str, str]:
    """Return the environment of a process: its cores, and its GPU."""
    from isotrope.methods.launch import cores

    found = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
    found["OMP_NUM_THREADS"] = str(max(1, cores() // jobs))
    found = {name: os.environ.get(name, value) for name, value in found.items()}
    if devices := gpus():
        found["CUDA_VISIBLE_DEVICES"] = devices[place % len(devices)]
    return found


def gpus() -> list[str]:
    """Return the GPUs that may be used, by the names that CUDA_VISIBLE_DEVICES takes."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return named.split(",")[:count] if named else [str(place) for place in range(count)]


def _work(pipe: Connection, watched: Connection, environment: dict[str, str]) -> None:
    """Do what comes through the pipe until nothing more can."""
    os.setsid()  # Ctrl-C comes through the first process, once
    os.environ.update(environment)  # before anything that reads it is imported
    busy = False

    def react(asked: list[int]) -> None:
        if busy:
            _stop(asked[-1])

    with _signals(react):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        threading.Thread(target=_follow, args=(watched,), daemon=True).start()
        with suppress(EOFError, OSError):
            while True:
                order = pipe.recv_bytes()
                try:
                    busy = True
                    task, item = pickle.loads(order)  # noqa: S301 - our own process
                    answer = pickle.dumps(("done", task(item)))
                except InputError as error:
                    answer = pickle.dumps(("failed", str(error)))
                except (KeyboardInterrupt, LostProcess, _Terminated):
                    answer = pickle.dumps(("stopped", None))
                except Exception:
                    answer = pickle.dumps(("bug", traceback.format_exc()))
                finally:
                    busy = False
                pipe.send_bytes(answer)


def _follow(watched: Connection) -> None:
    """End, with a checkpoint, when whoever started us is gone."""
    with suppress(EOFError, OSError):
        watched.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os._exit(1)
