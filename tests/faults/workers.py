"""A process of the data loader that is killed in the middle of a run."""

import os
import shutil
import signal
import time
from pathlib import Path

from tests.faults.trials import Server, Whole, command, differences, leftovers, state, torn

__all__ = ["kill_worker"]

LOST = 75


def kill_worker(server: Server, whole: Whole, corpus: Path, folder: Path) -> None:
    """Kill the worker of a run after its first checkpoint, and resume.

    Args:
        server: that starts the run.
        whole: the uninterrupted run of a configuration with a worker; it must have steps enough
            that the worker is still needed after the first checkpoint.
        corpus: folder of the text.
        folder: to run in; removed if all is well.

    Raises:
        AssertionError: the run does not end as it should, or does not go on.
    """
    output = folder / "run"
    arguments = command(whole.name, corpus, output)
    process = server.begin(arguments, folder)
    until = time.monotonic() + 60
    while not (output / "checkpoints" / "last.ckpt").exists() and time.monotonic() < until:
        time.sleep(0.002)
    for worker in (Path("/proc") / f"{process}/task/{process}/children").read_text().split():
        os.kill(int(worker), signal.SIGKILL)
    reply = server.end()
    assert reply.code == LOST, f"{reply.code}: {reply.output}"
    assert reply.output.count("\n") == 1, reply.output
    assert "a process that reads data has gone (DataLoader worker" in reply.output, reply.output
    assert "with --resume to go on from the last checkpoint" in reply.output, reply.output
    assert not torn(output), torn(output)
    again = server.run([*arguments[:2], "--resume", *arguments[2:]], folder)
    assert again.code == 0, again.output
    wrong = differences(state(output), whole.state) + leftovers(output)
    assert not wrong, "\n".join(wrong)
    shutil.rmtree(folder)
