"""A process that has imported everything; each trial is a fork of it and starts at once.

Orders come as lines of JSON, one after the other. The answer has two lines: the process, as soon
as it is there; and what became of it, when it has ended. Nothing is computed here: the
trial must find torch as a new process would.
"""

import dataclasses
import importlib
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from typing import IO, Any

from tests.faults.inject import Calls, Fault

_PATIENCE = 600.0  # seconds; a trial that hangs has failed
_IMPORTED = (
    "isotrope.cli.train",
    "isotrope.cli.train_images",
    "isotrope.cli.diagnose",
    "isotrope.training.text",
    "isotrope.training.images.train",
    "sentence_transformers",
    "tensorboard",
    "torch.utils.tensorboard",
    "transformers.models.bert.modeling_bert",
)


def main() -> None:
    """Answer orders until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints
    sys.dont_write_bytecode = True  # else some trials write more files than others
    for name in _IMPORTED:
        importlib.import_module(name)
    # short: workers of loaders meet at sockets in it, whose paths go to 107 bytes
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        _answer(place, answers)


def _answer(place: str, answers: IO[str]) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        said, told = os.pipe(), os.pipe()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            answers.close()
            tempfile.tempdir = place
            os._exit(_trial(order, said[1], told[1]))
        os.close(said[1])
        os.close(told[1])
        print(json.dumps({"pid": child}), file=answers, flush=True)
        ended = _await(child, [said[0], told[0]], order.get("kill"), began)
        print(json.dumps(ended), file=answers, flush=True)


def _await(child: int, pipes: list[int], kill: float | None, began: float) -> dict[str, Any]:
    """Wait for the trial, or kill it at its time; return what became of it."""
    found = dict.fromkeys(pipes, b"")
    reading = list(pipes)
    ended, status, usage = 0, 0, None
    while not ended:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        _read(reading, found, 0 if ended else 0.002 if kill is not None else 0.02)
        late = _PATIENCE if kill is None else kill
        if not ended and time.monotonic() - began >= late:
            os.kill(child, signal.SIGKILL)
            kill = None
    for pipe in pipes:
        os.close(pipe)
    assert usage is not None
    output, calls = (found[pipe].decode("utf-8", "replace") for pipe in pipes)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": time.monotonic() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "output": output,
        "calls": json.loads(calls or "[]"),
    }


def _read(reading: list[int], found: dict[int, bytes], patience: float) -> None:
    """Take what is in the pipes; a worker that outlives the trial may hold them open."""
    if not reading:
        time.sleep(patience)
    while ready := select.select(reading, [], [], patience)[0] if reading else []:
        for pipe in ready:
            if data := os.read(pipe, 1 << 16):
                found[pipe] += data
            else:
                reading.remove(pipe)
        patience = 0


def _trial(order: dict[str, Any], said: int, told: int) -> int:
    """Be the process of a trial; return its exit code."""
    import numpy as np
    import torch

    from isotrope.cli.main import guarded

    nothing = os.open(os.devnull, os.O_RDWR)
    for number, end in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(number, end)
    sys.stdout, sys.stderr = (os.fdopen(end, "w", buffering=1, closefd=False) for end in (1, 2))
    os.chdir(order["folder"])
    # where generators happen to stand must not matter
    random.seed(order["seed"])
    np.random.seed(order["seed"])  # noqa: NPY002 - torch's loaders and others read this one
    torch.manual_seed(order["seed"])
    sys.argv = ["isotrope", *order["arguments"]]
    calls = Calls(Fault(**order["fault"])) if order.get("fault") else None
    try:
        code = guarded(order["arguments"])
        sys.stdout.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    if calls is not None:
        os.write(told, json.dumps(calls.found).encode())
    return code


def fields(fault: Fault) -> dict[str, Any]:
    """Return a fault as an order says it."""
    return dataclasses.asdict(fault)


if __name__ == "__main__":
    main()
