"""Runs that are killed at random points, and again when they are resumed, until they finish."""

import random
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.inject import Fault
from tests.faults.trials import (
    Reply,
    Server,
    Whole,
    command,
    differences,
    leftovers,
    state,
    torn,
)

_MOST = 4  # kills of one run


@dataclass
class Survived:
    """How often runs of a configuration were killed, by what was interrupted.

    Attributes:
        kills: ``moment``: at any time; ``call``: before a call that changes files, or in the middle
            of a write of Python's; ``native``: in the middle of a write of any library.
        runs: that were killed at least once.
        cpu: seconds of a core.
    """

    kills: dict[str, int] = field(default_factory=lambda: {"moment": 0, "call": 0, "native": 0})
    runs: int = 0
    cpu: float = 0.0

    @property
    def total(self) -> int:
        """All kills."""
        return sum(self.kills.values())


def _draw(whole: Whole, rng: random.Random) -> tuple[str, Fault | None, float | None]:
    """Return how to kill: its name, the fault, the moment."""
    how = rng.choice(["moment", "moment", "call", "call", "native"])
    if how == "moment":
        return how, None, rng.uniform(0.02, whole.seconds)
    # most calls are the writes of checkpoints, of which each has hundreds
    writes = rng.random() < 0.5
    at = rng.choice([i for i, c in enumerate(whole.calls, 1) if writes or c[0] != "write"])
    if how == "call":
        return how, Fault(at=at, do="kill"), None
    # of any order of magnitude up to the largest file
    size = int(2 ** rng.uniform(0, whole.sizes[-1].bit_length()))
    return how, Fault(at=at, do="die", size=size), None


def survive(server: Server, whole: Whole, corpus: Path, folder: Path, seed: int) -> Survived:
    """Kill one run at random points until it has been resumed to its end, and check it.

    Args:
        server: that starts it.
        whole: the uninterrupted run.
        corpus: folder of the text.
        folder: to run in; removed if all is well.
        seed: of what is drawn.

    Raises:
        AssertionError: the run does not go on, or ends in another state; says where and how.
    """
    rng, found = random.Random(f"{whole.name} {seed}"), Survived()
    output, story = folder / "run", [f"{whole.name}, seed {seed}, {folder}"]
    arguments = command(whole.name, corpus, output)
    for _ in range(rng.randint(1, _MOST)):
        how, fault, moment = _draw(whole, rng)
        story.append(f"{how}: {fault or moment}")
        reply = server.run(arguments, folder, fault=fault, kill=moment)
        found.cpu += reply.cpu
        arguments = [*arguments[:2], "--resume", *command(whole.name, corpus, output)[2:]]
        if reply.code == 0:
            break
        _check(reply.code in (-signal.SIGKILL, -signal.SIGXFSZ), story, reply)
        found.kills[how] += 1
        story += torn(output)
        _check(not torn(output), story, reply)
    reply = server.run(arguments, folder)
    found.cpu += reply.cpu
    _check(reply.code == 0, story, reply)
    story += differences(state(output), whole.state) + leftovers(output)
    _check(not differences(state(output), whole.state) and not leftovers(output), story, reply)
    found.runs = int(found.total > 0)
    shutil.rmtree(folder)
    return found


def _check(fine: bool, story: list[str], reply: Reply) -> None:
    if not fine:
        story.append(f"exit code {reply.code}\n{reply.output}")
        raise AssertionError("\n".join(story))


def kill_points(
    server: Server, whole: Whole, corpus: Path, folder: Path, *, count: int, seed: int = 0
) -> Survived:
    """Kill runs of a configuration until there were so many kills; see :func:`survive`."""
    found = Survived()
    while found.total < count:
        one = survive(server, whole, corpus, folder / str(seed), seed)
        for how, kills in one.kills.items():
            found.kills[how] += kills
        found.runs, found.cpu, seed = found.runs + one.runs, found.cpu + one.cpu, seed + 1
    return found
