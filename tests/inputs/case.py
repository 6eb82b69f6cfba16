"""A case: what makes bad input and the command that gets it; trying one, and what went wrong."""

import contextlib
import hashlib
import io
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType

SECONDS = 600
"""A hang: a case takes milliseconds on an idle machine, and may take a minute on a busy one."""
MEMORY = 1 << 30
"""Bytes that a case may ask for beyond what the process has: a bomb meets this, not the machine."""
LONGEST = 3000
"""Characters of the line, beside the folder of the test: what is wrong must not scroll away."""


class Bench:
    """What many cases start from, made once: small models, a run, pictures."""

    def __init__(self, folder: Path) -> None:
        # libraries that a case would load write caches of their own, which are not the case's
        import isotrope.reports.plots
        import isotrope.training.text  # noqa: F401

        self.folder = folder

    @cached_property
    def text(self) -> Path:
        """A small encoder of text."""
        from isotrope.encoders.sentence import SentenceEncoder

        texts = ["a tall ship sails", "bread with rye flour", "open doors of a house"] * 4
        encoder = SentenceEncoder.scratch(
            texts, width=8, layers=1, heads=1, vocabulary=120, max_length=32
        )
        encoder.save(self.folder / "text")
        return self.folder / "text"

    @cached_property
    def pictures(self) -> Path:
        """Pictures of four classes."""
        from tests.image_run import write_pictures

        return write_pictures(self.folder / "pictures.npz")

    @cached_property
    def image_run(self) -> Path:
        """A finished run on these pictures; its ``model`` is a small encoder of images."""
        from tests.image_run import write_image_run

        return write_image_run(self.folder / "image-run", self.pictures)

    @property
    def image(self) -> Path:
        """A small encoder of images."""
        return self.image_run / "model"

    @cached_property
    def run(self) -> Path:
        """A finished run on text with its model."""
        from tests.reports.folders import write_run

        folder = write_run(self.folder / "run")
        shutil.copytree(self.text, folder / "model")
        return folder

    @cached_property
    def sentences(self) -> Path:
        """A file of good text."""
        file = self.folder / "sentences.txt"
        file.write_text("".join(f"sentence number {i} is here\n" for i in range(90)))
        return file


Make = Callable[[Path, Bench], Sequence[object]]


@dataclass(frozen=True)
class Case:
    """Bad input.

    Attributes:
        name: ``area/what is wrong``.
        make: makes the files in an empty folder, which is the current one, and returns the
            arguments of ``isotrope``.
        says: a part of the line that says what is wrong.
    """

    name: str
    make: Make
    says: str = ""


class _Hangs(BaseException):
    """The time is over; no ``except Exception`` catches it."""


def tried(case: Case, bench: Bench, folder: Path) -> tuple[list[str], float]:
    """Try a case in an empty folder.

    Returns:
        what went wrong, nothing if it was refused as it should be; and the seconds it took.
    """
    from isotrope.cli.main import guarded
    from tests.inputs.advice import not_taken

    room = folder / "room"
    temporary = folder / "temporary"
    cache = folder / "cache"
    for made in (room, temporary, cache):
        made.mkdir(parents=True)
    with _inside(room, temporary, cache, bench.folder):
        arguments = [str(argument) for argument in case.make(room, bench)]
        before = _everything(folder)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        start = time.monotonic()
        wrong: list[str] = []
        code: object = None
        try:
            with _limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = guarded(arguments)
        except _Hangs:
            wrong.append(f"no end after {SECONDS} s")
        except BaseException as error:
            wrong.append(f"{type(error).__name__}: {str(error)[:300]}")
        took = time.monotonic() - start
        said = _text(err)
        *before_it, line = said.splitlines() or [""]
        if not wrong:
            if code != 2:
                wrong.append(f"exit code {code}")
            # a run may have said what its data are before it met what is wrong
            noisy = any("error" in one or "Traceback" in one for one in before_it)
            if noisy or not line.startswith("isotrope: error: "):
                wrong.append(f"not one line of error on stderr: {said[:600]!r}")
            elif len(line) > LONGEST:
                wrong.append(f"a line of {len(line)} characters")
            elif flags := not_taken(arguments, line):
                wrong.append(f"proposes {flags}, which {arguments[0]} does not take: {line}")
            elif case.says not in line:
                wrong.append(f"{case.says!r} is not in {said!r}")
            if _text(out):
                wrong.append(f"on stdout: {_text(out)[:200]!r}")
        after = _everything(folder)
        differing = sorted({*before.items()} ^ {*after.items()})
        if differing:
            wrong.append(f"written: {', '.join(dict.fromkeys(name for name, _ in differing))}")
    return wrong, took


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def _everything(folder: Path) -> dict[str, str]:
    """Return all that lies below a folder: names, kinds, and digests of content."""
    found: dict[str, str] = {}
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(root, name)
            shown = os.fsencode(path.relative_to(folder)).decode("utf-8", "backslashreplace")
            if path.is_symlink():
                found[shown] = f"link {os.fsencode(path.readlink())!r}"
            elif path.is_file() and path.stat().st_size < 1 << 24:
                found[shown] = hashlib.blake2b(path.read_bytes()).hexdigest()
            else:
                found[shown] = str(path.stat().st_mode)
    return found


@contextlib.contextmanager
def _inside(room: Path, temporary: Path, cache: Path, keys: Path) -> Iterator[None]:
    """Be in a folder, with temporary files and caches beside it."""
    names = {
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(cache),
        "XDG_CONFIG_HOME": str(keys),
        "HF_HUB_OFFLINE": "1",
    }
    before = {name: os.environ.get(name) for name in names}
    where, temp = Path.cwd(), tempfile.tempdir
    os.environ.update(names)
    tempfile.tempdir = None
    os.chdir(room)
    try:
        yield
    finally:
        os.chdir(where)
        tempfile.tempdir = temp
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Let what takes too long, or too much memory, fail."""

    def over(number: int, frame: FrameType | None) -> None:
        raise _Hangs

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/status")
    known = status.read_text().split("VmData:")[1].split()[0] if status.exists() else None
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    if known is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(known) * 1024 + MEMORY, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
