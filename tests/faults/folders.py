"""Two runs that want one folder at the same time: one of them trains, the other is refused."""

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.faults.trials import Reply, Server, Whole, command, differences, leftovers, state


def contend(servers: tuple[Server, Server], whole: Whole, corpus: Path, folder: Path) -> None:
    """Start a run twice on one folder: at once, or the second while the first stands still.

    Args:
        servers: that start them.
        whole: the uninterrupted run.
        corpus: folder of the text.
        folder: to run in; removed if all is well. Its name decides how and when.

    Raises:
        AssertionError: both train, or none, or what is left is not the run.
    """
    output, rng = folder / "run", random.Random(folder.name)
    arguments = command(whole.name, corpus, output)
    if rng.random() < 0.5:
        for server in servers:
            server.begin(arguments, folder)
        replies = [server.end() for server in servers]
    else:
        moment = rng.uniform(0, whole.seconds)
        while (stopped := _stopped(servers, arguments, folder, moment)) is None:
            shutil.rmtree(output)  # the first had ended by then
            moment /= 2
        replies = stopped
    told = "\n".join(f"{reply.code}: {reply.output}" for reply in replies)
    assert sorted(reply.code for reply in replies) == [0, 2], told
    (refused,) = (reply.output for reply in replies if reply.code == 2)
    assert refused.count("\n") == 1, told
    assert refused.startswith("isotrope: error: "), told
    # the other may have ended before this one looked
    kinds = ("another process is training", "not empty", "continue the run in", "is finished")
    assert any(kind in refused for kind in kinds), told
    wrong = differences(state(output), whole.state) + leftovers(output)
    assert not wrong, "\n".join([*wrong, told])
    shutil.rmtree(folder)


def _stopped(
    servers: tuple[Server, Server], arguments: list[str], folder: Path, moment: float
) -> list[Reply] | None:
    """Let the second run come and go while the first stands still; None if that has ended."""
    first, second = servers
    process = first.begin(arguments, folder)
    time.sleep(moment)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGSTOP)
    if (folder / "run" / "result.json").exists():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
        first.end()
        return None
    # with --resume only the other process is in its way
    reply = second.run([*arguments[:2], "--resume", *arguments[2:]], folder)
    os.kill(process, signal.SIGCONT)
    return [first.end(), reply]
