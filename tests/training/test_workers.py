"""Processes of a run and of a sweep, whatever happens to them; nothing is trained.

The processes import this file for their tasks: it imports neither torch nor transformers.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from isotrope.core.errors import InputError, LostProcess, MissingExtra
from isotrope.core.spelling import as_flag, spelled
from isotrope.training import launch
from isotrope.training.launch import each
from tests.patience import MINUTES, wait_until

SCRIPT = """
import signal, sys, time
from pathlib import Path
from isotrope.core.errors import LostProcess
from isotrope.training import launch
from isotrope.training.launch import each
from tests.training.test_workers import long

if __name__ == "__main__":
    launch.gpus = lambda: []
    folder, jobs = Path(sys.argv[1]), int(sys.argv[2])
    items = [folder / name for name in ("quick", "a", "b", "never", "never2")]
    try:
        for item, found in each(long, items, jobs):
            print(item.name, found, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
    except LostProcess:
        sys.exit(75)
"""


@pytest.fixture(autouse=True)
def no_gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for them takes torch, which nothing else here needs."""
    if "gpus" not in request.node.name:
        monkeypatch.setattr(launch, "gpus", list)


def _sleep() -> None:
    """Sleep in turns: a signal that comes just before a sleep is handled only after it."""
    until = time.monotonic() + MINUTES
    while time.monotonic() < until:
        time.sleep(0.1)


def square(number: int) -> int:
    if number == 3:
        raise MissingExtra("three", extra="numbers")
    return number * number


def process(folder: Path) -> int:
    assert "torch" not in sys.modules, "seconds for every process of these tests"
    (folder / str(os.getpid())).touch()
    wait_until(lambda: len(list(folder.iterdir())) == 2)  # so that the other one gets a turn
    return os.getpid()


def killed(item: Path) -> str:
    if item.name == "killed":
        wait_until((item.parent / "slow").exists)
        item.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    item.touch()
    other = item.parent / "killed"
    wait_until(lambda: other.exists() and other.read_text() and _awaited(int(other.read_text())))
    return item.name


def _awaited(pid: int) -> bool:
    """Return whether the first process knows that one of its processes has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def broken(item: str) -> str:
    if item == "broken":
        raise ZeroDivisionError("of our own")
    return item


def refusing(kind: type[InputError | LostProcess]) -> None:
    raise kind("use fewer `--workers` if memory is short: a process died")


def full(kind: type[Exception]) -> None:
    raise OSError(28, "No space left on device", "a file") if kind is OSError else kind("no room")


def without_memory(item: int) -> None:
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")


def environment(item: int) -> str:
    return " ".join(os.environ.get(n, "") for n in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"))


def long(path: Path) -> str:
    """Say that it runs, and run until asked to stop, but for the first."""
    if path.name == "quick":
        return "done"
    try:
        path.write_text(str(os.getpid()))  # who reads it may ask at once
        _sleep()
    finally:
        path.with_suffix(".left").write_text("a checkpoint")
    return "too late"


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_is_done_and_what_cannot_be_says_why(jobs: int) -> None:
    found = dict(each(square, range(5), jobs))
    assert isinstance(found[3], InputError)
    assert "needs the package 'three'" in str(found.pop(3))
    assert found == {0: 0, 1: 1, 2: 4, 4: 16}


def test_several_processes_work_side_by_side_and_go_on(tmp_path: Path) -> None:
    found = [pid for _, pid in each(process, [tmp_path] * 6, 2)]
    assert len(set(found)) == 2
    assert os.getpid() not in found
    for pid in set(found):
        with pytest.raises(ProcessLookupError):
            os.kill(int(str(pid)), 0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_finished_is_known_before_the_next_is_taken(jobs: int) -> None:
    known: list[int] = []

    def items() -> Iterator[int]:
        for number in (0, 1, 2, 4):
            assert len(known) > number - jobs - (number == 4)
            yield number

    for item, _ in each(square, items(), jobs):
        known.append(item)
    assert sorted(known) == [0, 1, 2, 4]


def test_a_killed_process_is_told_and_the_other_one_finishes(tmp_path: Path) -> None:
    found: list[str] = []
    items = [tmp_path / name for name in ("slow", "killed", "never", "nor")]
    with pytest.raises(LostProcess, match=r"SIGKILL, often for lack of memory: try fewer jobs"):
        found.extend(item.name for item, _ in each(killed, items, 2))
    assert found == ["slow"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_has_the_same_message_with_any_number_of_jobs(jobs: int) -> None:
    for spelling, said in ((None, "use fewer workers if"), (as_flag, "use fewer --workers if")):
        with spelled(spelling) if spelling else nullcontext():
            ((_, refused),) = each(refusing, [InputError], jobs)
            with pytest.raises(LostProcess) as lost:
                list(each(refusing, [LostProcess], jobs))
            expected = f"{said} memory is short: a process died"
            assert [str(refused), str(lost.value)] == [expected] * 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bug_is_raised_after_what_was_running(jobs: int) -> None:
    found: list[str] = []
    with pytest.raises((RuntimeError, ZeroDivisionError), match="of our own"):
        found.extend(item for item, _ in each(broken, ["fine", "broken", "never", "nor"], jobs))
    # a process that is not the broken one may finish more before the other breaks
    assert found == ["fine", "never", "nor"][: len(found)]
    assert found
    assert jobs == 2 or len(found) == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_or_memory_is_the_same_error_with_any_number_of_jobs(jobs: int) -> None:
    """The command line prints these errors on one line, with exit code 2."""
    with pytest.raises(OSError, match="No space left") as caught:
        list(each(full, [OSError], jobs))
    assert (caught.value.errno, caught.value.filename) == (28, "a file")
    for kind in (MemoryError, OSError.__subclasses__()[0]):
        with pytest.raises(MemoryError if kind is MemoryError else OSError, match="no room"):
            list(each(full, [kind], jobs))
    with pytest.raises(RuntimeError if jobs == 1 else MemoryError, match="allocate memory"):
        list(each(without_memory, [0], jobs))


def test_a_process_has_its_share_of_cores_and_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("isotrope.training.launch.cores", lambda: 12)
    monkeypatch.setattr(launch, "gpus", lambda: ["4", "7"])
    (_, found), *_ = each(environment, [0], 2)
    assert found == "6 4"
    own = {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "4"}
    assert own.items() <= launch._share(2, 3).items()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # what the user has set goes first
    assert launch._share(0, 3)["OMP_NUM_THREADS"] == "1"


def test_gpus_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    assert launch.gpus() == ["3", "5"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert launch.gpus() == ["0", "1"]


def _started(tmp_path: Path, jobs: int) -> "subprocess.Popen[str]":
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    root = str(Path(__file__).resolve().parents[2])
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), str(jobs)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, f"{root}/src"])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _running(tmp_path: Path, names: tuple[str, ...]) -> list[int]:
    """Wait until these have begun; return their processes."""
    files = [tmp_path / name for name in names]
    wait_until(
        lambda: all(file.is_file() and file.read_text() for file in files), "they do not begin"
    )
    return [int(file.read_text()) for file in files]


def _gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return True


@pytest.mark.parametrize(
    ("jobs", "number", "everyone"),
    [(2, signal.SIGINT, True), (2, signal.SIGTERM, False), (1, signal.SIGINT, True)],
)
def test_asked_to_stop_all_leave_a_checkpoint_and_none_is_left(
    tmp_path: Path, jobs: int, number: signal.Signals, everyone: bool
) -> None:
    """As a terminal asks (everybody in it), or a scheduler (the first process)."""
    started = _started(tmp_path, jobs)
    names = ("a", "b")[:jobs]
    busy = _running(tmp_path, names)
    (os.killpg if everyone else os.kill)(started.pid, number)
    out, err = started.communicate(timeout=MINUTES)
    assert started.returncode == (130 if number == signal.SIGINT else 75), err
    assert out == "quick done\n"
    assert err == ""
    wait_until(lambda: all(_gone(pid) for pid in busy))
    assert all((tmp_path / name).with_suffix(".left").is_file() for name in names)
    assert not (tmp_path / "never").exists()


def test_when_the_first_process_is_killed_the_others_end_with_a_checkpoint(tmp_path: Path) -> None:
    started = _started(tmp_path, 2)
    busy = _running(tmp_path, ("a", "b"))
    started.kill()
    started.communicate(timeout=MINUTES)
    wait_until(lambda: all(_gone(pid) for pid in busy))
    assert all((tmp_path / name).with_suffix(".left").is_file() for name in ("a", "b"))


# the ranks of one run


def hangs_or_fails(item: str) -> tuple[int, str]:
    if os.environ["RANK"] == "1":
        raise InputError("a bad file")
    time.sleep(MINUTES)
    Path(item).touch()
    return 0, item


def test_a_process_that_hangs_when_another_has_failed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_HANGS", 0.2)
    with pytest.raises(InputError, match="a bad file"):
        launch.launch(2, hangs_or_fails, str(tmp_path / "end"))
    assert not (tmp_path / "end").exists()


def binds(_: int) -> tuple[int, bool]:
    """Return whether another program could take the port of the processes before they do."""
    with socket.socket() as other:
        try:
            other.bind(("", int(os.environ["MASTER_PORT"])))
        except OSError:
            return 0, False
        return 0, True


def test_no_other_program_can_take_the_port_of_the_processes() -> None:
    assert launch.launch(1, binds, 0) == (0, False)


def ctrl_c_twice(item: int) -> tuple[int, int]:
    """Ask whoever started us, as a terminal does, and go on all the same."""
    for _ in range(2):
        with suppress(KeyboardInterrupt):
            os.kill(os.getppid(), signal.SIGINT)
            _sleep()
    return 0, item


def test_ctrl_c_twice() -> None:
    with pytest.raises(KeyboardInterrupt):
        launch.launch(1, ctrl_c_twice, 0)
