"""Runs whose writes fail, each of them once: what is said, what is left, and what follows."""

import errno
import itertools
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.inject import NEED_NO_SPACE, Fault
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

# an error of the device once; a disk that is full, or has become read-only, and stays so
_KINDS = [(errno.ENOSPC, True), (errno.EIO, False), (errno.EROFS, True), (errno.ENOSPC, False)]
_SIZES = (0, 100, 3_000, 20_000, 60_000, 200_000, 1_000_000)


@dataclass
class Failed:
    """Runs in which a write failed.

    Attributes:
        refused: that ended with exit code 2 and one line, and went on when they were resumed.
        harmless: that went to their end without it, and ended in the same state.
        errors: how many failed with which error.
        cpu: seconds of a core.
    """

    refused: int = 0
    harmless: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    cpu: float = 0.0

    def add(self, other: "Failed") -> None:
        """Count other runs, too."""
        self.refused += other.refused
        self.harmless += other.harmless
        self.cpu += other.cpu
        for name, count in other.errors.items():
            self.errors[name] = self.errors.get(name, 0) + count


def faults_of(whole: Whole) -> list[Fault]:
    """Return a fault for each call of a run that changes files, and for some limits of file size.

    Of the writes to one file that follow each other (a checkpoint has hundreds) the first, the
    last, and one between them fail.

    Args:
        whole: the uninterrupted run.
    """
    faults, chosen = [], []
    for _, group in itertools.groupby(enumerate(whole.calls, 1), key=lambda call: call[1]):
        alike = list(group)
        chosen += sorted({0: alike[0], 1: alike[len(alike) // 2], 2: alike[-1]}.values())
    for at, (what, _) in dict(chosen).items():
        error, stays = _KINDS[at % len(_KINDS)]
        if error == errno.ENOSPC and what in NEED_NO_SPACE:
            error = errno.EIO
        faults.append(Fault(at=at, do="fail", error=error, stays=stays))
    sizes = [size for size in _SIZES if size < whole.sizes[-1]]
    return faults + [Fault(at=1, do="limit", size=size) for size in sizes]


def interrupt(server: Server, whole: Whole, corpus: Path, folder: Path, fault: Fault) -> Failed:
    """Let one write of a run fail, lift the fault, resume, and check everything.

    Raises:
        AssertionError: something is not as it should be; says what.
    """
    arguments = command(whole.name, corpus, folder / "run")
    reply = server.run(arguments, folder, fault=fault)
    what = "file size" if fault.do == "limit" else errno.errorcode[fault.error]
    found = _follow(server, whole, arguments, folder, reply, f"{fault}")
    found.errors = {what: 1}
    shutil.rmtree(folder)
    return found


def _follow(
    server: Server, whole: Whole, arguments: list[str], folder: Path, reply: Reply, fault: str
) -> Failed:
    """Check how a run ended, and how it goes on."""
    output = folder / "run"
    story = [f"{whole.name}, {folder}", fault, f"exit code {reply.code}", reply.output]
    found = Failed(cpu=reply.cpu)
    assert "Traceback" not in reply.output, "\n".join(story)
    assert reply.code in (0, 2), "\n".join(story)
    if reply.code == 2:
        # what the run said on its way, then one line
        *said, last = reply.output.splitlines()
        assert last.startswith("isotrope: error: "), "\n".join(story)
        assert not any("error: " in line for line in said), "\n".join(story)
        found.refused = 1
        if output.exists():
            story += torn(output)
            assert not torn(output), "\n".join(story)
            arguments = [*arguments[:2], "--resume", *arguments[2:]]
        again = server.run(arguments, folder)
        story += [f"then exit code {again.code}", again.output]
        found.cpu += again.cpu
        assert again.code == 0, "\n".join(story)
    else:
        found.harmless = 1
    story += differences(state(output), whole.state) + leftovers(output)
    assert not differences(state(output), whole.state), "\n".join(story)
    # what could not be removed is left where nothing was refused
    assert found.harmless or not leftovers(output), "\n".join(story)
    return found


def full_disk(
    server: Server, whole: Whole, corpus: Path, folder: Path, *, share: float
) -> Failed | None:
    """Run on a disk that a part of the run fills, make room, and resume.

    Args:
        server: that starts it.
        whole: the uninterrupted run.
        corpus: folder of the text.
        folder: to put the disk (of memory) at.
        share: of what a run needs that there is room for.

    Returns:
        What came of it; None where this user may not make a disk.
    """
    folder.mkdir(parents=True)
    room = int(share * 2 * sum(whole.sizes))  # a checkpoint is there twice while it is written
    options = f"size={max(room, 4096)},mode=700"
    if not _mount("mount", "-t", "tmpfs", "-o", options, "none", str(folder)):
        return None
    try:
        arguments = command(whole.name, corpus, folder / "run")
        reply = server.run(arguments, folder)
        _mount("mount", "-o", "remount,size=1g", str(folder))
        found = _follow(server, whole, arguments, folder, reply, options)
        found.errors = {"full disk": 1}
    finally:
        _mount("umount", str(folder))
    return found


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(arguments, capture_output=True).returncode == 0
    except OSError:
        return False
