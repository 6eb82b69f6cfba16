"""The program of the processes that :mod:`isotrope.training.launch` starts.

A process runs one task after another. The command is ``python -m isotrope.training.worker
CONNECTION``, where CONNECTION is the number of an open file descriptor for tasks and answers.
"""

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType

from isotrope.core.errors import Diverged, InputError, LostProcess, memory_is_full
from isotrope.training.launch import STOPS, Terminated, handling, interrupt

_PARENT = 0  # descriptor of standard input, a pipe that closes when the parent ends
_PATIENCE = 600.0  # seconds for a step and a checkpoint when the parent is gone


def main(connection: Connection) -> None:
    """Run the tasks that arrive through the connection, until the parent process closes it."""
    busy = False

    def react(number: int, frame: FrameType | None) -> None:
        if busy:
            interrupt(number)

    with handling(react):
        # the parent has blocked both signals, so that none is lost before this line
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        with suppress(EOFError, OSError):
            while True:
                order = connection.recv_bytes()
                try:
                    busy = True
                    answer = _answer(order)
                except (KeyboardInterrupt, Terminated) as stop:
                    number = signal.SIGINT if isinstance(stop, KeyboardInterrupt) else None
                    answer = pickle.dumps(("stopped", number or signal.SIGTERM))
                finally:
                    busy = False
                connection.send_bytes(answer)


def _answer(order: bytes) -> bytes:
    """Run a task; return its status (done, failed, gone, machine or bug) and a value."""
    try:
        sys.argv, task, item = pickle.loads(order)  # noqa: S301 - our own parent
        return pickle.dumps(("done", task(item)))
    except InputError as error:
        kind = Diverged if isinstance(error, Diverged) else InputError
        return pickle.dumps(("failed", kind(error.text())))
    except LostProcess as error:
        return pickle.dumps(("gone", error.args[0]))
    except OSError as error:  # rebuilt, because a library's own classes may not unpickle
        about = (error.errno, error.strerror, error.filename) if error.errno else (str(error),)
        return pickle.dumps(("machine", OSError(*about)))
    except Exception as error:
        if memory_is_full(error):
            return pickle.dumps(("machine", MemoryError(str(error))))
        return pickle.dumps(("bug", traceback.format_exc()))


def _end_with_parent() -> None:
    """End this process, with a checkpoint, when the parent process has ended."""
    os.read(_PARENT, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE)
    os._exit(1)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
