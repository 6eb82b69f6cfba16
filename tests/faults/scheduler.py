"""Runs that a scheduler ends by SIGTERM at random moments, and again, until they finish."""

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.faults.trials import Server, Whole, command, differences, ends, leftovers, torn

REQUEUE = 75
_MOST = 4  # times that one run is ended


def requeue(server: Server, whole: Whole, corpus: Path, folder: Path) -> int:
    """End a run by SIGTERM and start it again with ``--resume``, a few times; check its end.

    Args:
        server: that starts it.
        whole: the uninterrupted run of a configuration.
        corpus: folder of the text.
        folder: to run in; removed if all is well. Its name decides when.

    Returns:
        How often the run was ended before it was done.

    Raises:
        AssertionError: it does not end as it should, or what is left is not the run.
    """
    rng, output, count = random.Random(f"{whole.name} {folder.name}"), folder / "run", 0
    arguments = command(whole.name, corpus, output)
    for _ in range(rng.randint(1, _MOST)):
        moment = rng.uniform(0, whole.seconds)
        process = server.begin(arguments, folder)
        time.sleep(moment)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        reply = server.end()
        told = f"{whole.name}, {folder}, after {moment} s, {reply.code}: {reply.output}"
        if reply.code == -signal.SIGTERM:  # so early that nobody listened
            assert not output.exists() or {p.name for p in output.iterdir()} <= {".lock"}, told
            continue
        arguments = [*arguments[:2], "--resume", *command(whole.name, corpus, output)[2:]]
        assert reply.code in (0, REQUEUE), told
        assert not output.exists() or not torn(output), told
        if reply.code == 0:
            break
        count += 1
        last = reply.output.splitlines()[-1]
        assert "run the same command with --resume" in last, told
    reply = server.run(arguments, folder)
    told = f"{whole.name}, {folder}, {reply.code}: {reply.output}"
    assert reply.code == 0, told
    wrong = differences(ends(output), whole.ends) + leftovers(output)
    assert not wrong, "\n".join([told, *wrong])
    shutil.rmtree(folder)
    return count
