"""A process that a run has started, of its data loader or a rank, is killed in its middle."""

import os
import shutil
import signal
import time
from pathlib import Path

from isotrope.training.checkpoints import exists
from tests.faults.trials import Server, Whole, command, differences, ends, leftovers, torn
from tests.patience import MINUTES

LOST = 75
WORKER = "a process that reads data died (DataLoader worker"
RANK = " of 2 was killed (SIGKILL, often for lack of memory)"


def kill_child(
    server: Server, whole: Whole, corpus: Path, folder: Path, *, number: int, said: str
) -> None:
    """Kill a child of a run after its first checkpoint, and resume.

    Args:
        server: that starts the run.
        whole: the uninterrupted run of a configuration with children; it must have steps enough
            that the child is still needed after the first checkpoint.
        corpus: folder of the text.
        folder: to run in; removed if all is well.
        number: of the child, from 0.
        said: a part of the line that the run ends with.

    Raises:
        AssertionError: the run does not end as it should, or does not go on.
    """
    output = folder / "run"
    arguments = command(whole.name, corpus, output)
    process = server.begin(arguments, folder)
    until = time.monotonic() + MINUTES
    while not exists(output / "checkpoints") and time.monotonic() < until:
        time.sleep(0.002)
    children = (Path("/proc") / f"{process}/task/{process}/children").read_text().split()
    os.kill(int(children[number]), signal.SIGKILL)
    reply = server.end()
    told = f"{reply.code}: {reply.output}"
    assert reply.code == LOST, told
    last = reply.output.splitlines()[-1]
    assert said in last, told
    assert "with --resume to continue from the last checkpoint" in last, told
    assert not torn(output), torn(output)
    again = server.run([*arguments[:2], "--resume", *arguments[2:]], folder)
    assert again.code == 0, again.output
    wrong = differences(ends(output), whole.ends) + leftovers(output)
    assert not wrong, "\n".join(wrong)
    shutil.rmtree(folder)
