"""One process at a time: who is kept out, who is let in, and what is left of it."""

import errno
import fcntl
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isotrope.core.errors import InputError
from isotrope.core.lock import (
    LOCK,
    clear,
    ensure_not_replaced,
    exclusive_lock,
    is_effectively_empty,
)
from tests.patience import MINUTES

HOLDS = """
import os, sys, time
from pathlib import Path
from isotrope.core.lock import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "training in x", role=sys.argv[2]):
    worker = os.fork() if sys.argv[3] == "with a worker" else 1
    if worker == 0:
        time.sleep(60)
        os._exit(0)
    print(worker, flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path, role: str = "only", how: str = "") -> Iterator[tuple[subprocess.Popen, int]]:
    """Another process that has the folder, and the worker that it has forked."""
    command = [sys.executable, "-c", HOLDS, str(folder), role, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        worker = int(process.stdout.readline())
        try:
            yield process, worker
        finally:
            process.kill()
            if how:
                os.kill(worker, signal.SIGKILL)


def is_free(folder: Path, role: str = "only") -> bool:
    try:
        with exclusive_lock(folder, "training in x", role=role):
            return True
    except InputError as error:
        who = "(another process|an earlier call of this process) is training in x"
        assert re.search(who, str(error))  # noqa: PT017
        return False


def seen(folder: Path) -> list[tuple[str, bytes, int]]:
    return [(p.name, p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.iterdir())]


def test_a_second_process_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    with held(tmp_path) as (process, _):
        before = seen(tmp_path)
        expected = (
            rf"^another process is training in x \(process {process.pid} on .+\); wait for it, "
            r"stop it, or choose another output \(or so\)$"
        )
        with (
            pytest.raises(InputError, match=expected),
            exclusive_lock(tmp_path, "training in x", " (or so)"),
        ):
            raise AssertionError
        assert seen(tmp_path) == before
        process.communicate()
    assert list(tmp_path.iterdir()) == []
    assert is_free(tmp_path)


def test_a_process_that_was_killed_lets_others_in(tmp_path: Path) -> None:
    with held(tmp_path) as (process, _):
        process.kill()
        process.wait()
        assert (tmp_path / LOCK).exists()
        assert is_free(tmp_path)


def test_a_worker_that_outlives_its_parent_keeps_nobody_out(tmp_path: Path) -> None:
    with held(tmp_path, how="with a worker") as (process, worker):
        assert not is_free(tmp_path)
        process.kill()
        process.wait()
        os.kill(worker, 0)  # it lives, and has the file open
        inode = (tmp_path / LOCK).stat().st_ino
        opened = [link.stat().st_ino for link in Path(f"/proc/{worker}/fd").glob("*")]
        assert inode in opened
        assert is_free(tmp_path)


def test_a_starter_lets_one_process_in_beside_it(tmp_path: Path) -> None:
    with held(tmp_path, "starter") as (starter, _):
        assert not is_free(tmp_path)
        assert not is_free(tmp_path, "starter")
        with held(tmp_path, "started") as (started, _):
            assert not is_free(tmp_path, "started")
            starter.kill()
            starter.wait()
            assert not is_free(tmp_path), "the process that writes is still there"
            both = rf"\(process {starter.pid} on .+, process {started.pid} on .+\); wait"
            with pytest.raises(InputError, match=both), exclusive_lock(tmp_path, "training in x"):
                raise AssertionError
            assert not is_free(tmp_path, "starter")
            started.communicate()
            assert (tmp_path / LOCK).exists()
            assert is_free(tmp_path)
    with held(tmp_path, "starter"), held(tmp_path, "started") as (started, _):
        started.communicate()
        assert not is_free(tmp_path), "the process that started it is still there"


def test_a_process_does_not_let_itself_in_and_stays_in_afterwards(tmp_path: Path) -> None:
    """Closing the file anywhere in the process would end the lock."""
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with exclusive_lock(tmp_path / "run", "training in x"):
        assert not is_free(tmp_path / "run")
        assert not is_free(tmp_path / "link")
        script = HOLDS.replace("sys.stdin.read()", "raise AssertionError")
        command = [sys.executable, "-c", script, str(tmp_path / "run"), "only", ""]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"(process {os.getpid()} on " in other.stderr
    assert not (tmp_path / "run").exists()


def test_no_two_of_many_are_in_at_once(tmp_path: Path) -> None:
    """The owner removes the file while others open it."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_hammer, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(MINUTES)
    assert [process.exitcode for process in processes] == [0] * 4


def _hammer(folder: Path) -> None:
    came = 0
    while came < 60:
        try:
            with exclusive_lock(folder / "a" / "b", "hammering"):
                # fails where somebody else is in
                os.close(os.open(folder / "in", os.O_CREAT | os.O_EXCL))
                (folder / "in").unlink()
                came += 1
        except InputError as error:
            assert "another process is hammering" in str(error)  # noqa: PT017


@pytest.mark.parametrize("role", ["only", "starter", "started"])
def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", none)
    with exclusive_lock(tmp_path, "training in x", role=role):
        pass
    warning = f"isotrope: warning: {tmp_path}: make sure that no other process writes"
    told = "" if role == "started" else warning
    assert capsys.readouterr().err.startswith(told)
    monkeypatch.setattr("isotrope.core.lock.fcntl", None)
    with exclusive_lock(tmp_path, "training in x", role=role):
        pass
    assert ("(this system has no file locks)" in capsys.readouterr().err) == bool(told)


@pytest.mark.parametrize("windows", [False, True])
def test_the_file_is_removed_while_the_lock_lasts_or_on_windows_after_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool
) -> None:
    was_open, unlink = [], Path.unlink

    def note(path: Path, missing_ok: bool = False) -> None:
        handles = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
        was_open.append(any(link.samefile(path) for link in handles))
        unlink(path, missing_ok=missing_ok)

    if windows:
        monkeypatch.setattr("isotrope.core.lock.fcntl", None)
    with exclusive_lock(tmp_path, "training in x"):
        monkeypatch.setattr(Path, "unlink", note)
    assert was_open == [not windows]
    assert list(tmp_path.iterdir()) == []


def test_another_error_of_the_lock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "lockf", broken)
    with (
        pytest.raises(InputError, match=r"cannot write .*\.lock: input/output error"),
        exclusive_lock(tmp_path, "training in x"),
    ):
        raise AssertionError


def test_a_place_where_no_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isotrope.core.lock._is_ours", lambda *_: False)
    with (
        pytest.raises(
            InputError, match=r"cannot write .*\.lock: another process keeps removing it"
        ),
        exclusive_lock(tmp_path, "training in x"),
    ):
        raise AssertionError


def test_only_what_was_made_and_is_empty_is_removed(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "a" / "b", "training in x"):
        assert is_effectively_empty(tmp_path / "a" / "b")
        (tmp_path / "a" / "mine").touch()
    assert list(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "mine"]
    (tmp_path / "empty").mkdir()
    with exclusive_lock(tmp_path / "empty", "training in x"):
        (tmp_path / "empty" / "folder").mkdir()
        (tmp_path / "empty" / "file").touch()
        assert not is_effectively_empty(tmp_path / "empty")
        clear(tmp_path / "empty")
        assert is_effectively_empty(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []
    (tmp_path / "cut" / ".config.yaml.ab12cd_e").mkdir(parents=True)
    assert is_effectively_empty(tmp_path / "cut"), "a first write that was cut short"
    assert is_effectively_empty(tmp_path / "nowhere")
    clear(tmp_path / "nowhere")


def test_a_folder_that_vanishes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("run")
    ensure_not_replaced(folder)
    with exclusive_lock(folder, "training in x"):
        ensure_not_replaced(folder)
        ensure_not_replaced(tmp_path / "run")
        (folder / LOCK).rename("aside")
        with pytest.raises(InputError, match=re.escape(f"{tmp_path / 'run'} was removed")):
            ensure_not_replaced(folder)
        (folder / LOCK).touch()  # by another run
        with pytest.raises(InputError, match="was removed or replaced during the run"):
            ensure_not_replaced(folder)
    assert (folder / LOCK).exists(), "it is not ours to remove"
    ensure_not_replaced(folder)
