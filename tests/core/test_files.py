"""Whole-file writes: a reader sees the old content or the new one, never half of it."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from isotrope.core.errors import InputError
from isotrope.core.files import (
    atomic_replace,
    check_outputs,
    open_own,
    os_errors_as_input_errors,
    stale_temporary_folders,
    tidy,
    write_all,
    write_text,
)

# a process that may write no file longer than 64 bytes: what a full disk does, without filling one
LIMITED = """
import resource, signal, sys
from pathlib import Path
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    with atomic_replace(Path(sys.argv[1])) as temporary:
        temporary.write_text("new " * 1000)
except InputError as error:
    print(error)
    sys.exit(2)
"""


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_new_file_and_its_missing_parents(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "x.txt"
    with atomic_replace(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert names(target.parent) == ["x.txt"]


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "x.txt"
    target.write_text("old")
    with atomic_replace(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert names(tmp_path) == ["x.txt"]


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    (target / "inner").mkdir(parents=True)
    (target / "inner" / "old.txt").write_text("old")
    with atomic_replace(target) as temporary:
        (temporary / "inner").mkdir(parents=True)
        (temporary / "inner" / "new.txt").write_text("new")
    assert names(target / "inner") == ["new.txt"]
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt()])
def test_a_failing_body_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    target = tmp_path / "x.txt"
    target.write_text("old")

    def write_half() -> None:
        with atomic_replace(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_a_body_that_writes_nothing_leaves_the_old_content(tmp_path: Path) -> None:
    target = tmp_path / "x.txt"
    target.write_text("old")
    with (
        pytest.raises(InputError, match=r"cannot write .*x\.txt: no such file"),
        atomic_replace(target),
    ):
        pass
    assert target.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_a_body_that_writes_nothing_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "old.txt").write_text("old")
    with pytest.raises(InputError, match=r"cannot write .*model"), atomic_replace(target):
        pass
    assert names(target) == ["old.txt"]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.txt"
    target.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(InputError, match=r"cannot write .*x\.txt: no space left on device; free"),
        atomic_replace(target) as temporary,
    ):
        temporary.write_text("new")
    assert target.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


@pytest.mark.parametrize("mode", [0o644, 0o444])
def test_only_files_open_for_writing_can_be_flushed_on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    writable: list[bool] = []
    access = os.access  # the superuser may write everything
    monkeypatch.setattr(
        os, "access", lambda path, how: access(path, how) and bool(path.stat().st_mode & 0o200)
    )

    def flush(descriptor: int) -> None:
        writable.append(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR)

    monkeypatch.setattr(os, "fsync", flush)
    with atomic_replace(tmp_path / "x") as temporary:
        (temporary / "deep").mkdir(parents=True)
        for file in (temporary / "a.txt", temporary / "deep" / "b.txt"):
            file.write_text("content")
            file.chmod(mode)
    assert writable == [mode == 0o644] * 2
    assert (tmp_path / "x" / "a.txt").read_text() == "content"


def test_a_write_that_the_system_cuts_short(tmp_path: Path) -> None:
    target = tmp_path / "x.txt"
    target.write_text("old")
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(target)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2, run.stderr
    assert f"cannot write {target}: file too large" in run.stdout
    assert run.stderr == ""
    assert target.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_a_file_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with (
        pytest.raises(InputError, match=r"cannot write .*x\.txt: (file exists|not a directory)"),
        atomic_replace(tmp_path / "file" / "x.txt"),
    ):
        pass
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write")
def test_a_folder_that_cannot_be_written() -> None:
    with (
        pytest.raises(InputError, match=r"cannot write /proc/none/x\.txt"),
        atomic_replace(Path("/proc/none/x.txt")),
    ):
        pass


def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o500)
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write anywhere")
        with (
            pytest.raises(InputError, match=r"cannot write .*x\.txt: permission denied"),
            atomic_replace(folder / "x.txt"),
        ):
            pass
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("name", ["n" * 255, "\U0001f600" * 63, "a" * 246])
def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path, name: str) -> None:
    for content in ("1", "2"):
        with atomic_replace(tmp_path / name) as temporary:
            temporary.write_text(content)
    assert write_all(tmp_path, {name: b"3"}) == [tmp_path / name]
    assert names(tmp_path) == [name]
    killed = tmp_path / f".{name[:60]}.x7_q0abc"
    (killed / "previous").mkdir(parents=True)
    (killed / name).mkdir()
    (tmp_path / name).unlink()
    tidy(tmp_path)
    assert names(tmp_path) == [name]


def test_the_remedy_is_for_what_happened(tmp_path: Path) -> None:
    for error, remedy in ((errno.ENOSPC, "free some space or choose"), (errno.ENOENT, "choose")):
        with (
            pytest.raises(InputError, match=f"; {remedy} another place$"),
            os_errors_as_input_errors(tmp_path),
        ):
            raise OSError(error, os.strerror(error))


def test_a_failed_rename_of_a_folder_puts_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "old.txt").write_text("old")

    def broken(self: Path, other: Path) -> Path:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "replace", broken)
    with (
        pytest.raises(InputError, match=r"cannot write .*model: input/output error"),
        atomic_replace(target) as temporary,
    ):
        temporary.mkdir()
    assert names(target) == ["old.txt"]


def test_a_link_to_a_folder_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "old.txt").write_text("old")
    link = tmp_path / "link"
    link.symlink_to(real)
    with atomic_replace(link) as temporary:
        temporary.write_text("new")
    assert link.read_text() == "new"
    assert names(real) == ["old.txt"]


def test_an_input_error_from_the_body_keeps_its_own_message(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"^line 3 is empty$"),
        os_errors_as_input_errors(tmp_path / "x.txt"),
    ):
        raise InputError("line 3 is empty")


def test_a_folder_is_not_replaced_by_a_file_nor_a_file_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("years of work")
    with (
        pytest.raises(InputError, match="folder is a folder, not a file; choose another name"),
        atomic_replace(tmp_path / "folder") as temporary,
    ):
        temporary.write_text("new")
    assert (tmp_path / "folder" / "mine").read_text() == "years of work"
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(InputError, match="file is a file, not a folder"),
        atomic_replace(tmp_path / "file") as temporary,
    ):
        temporary.mkdir()
    assert (tmp_path / "file").read_text() == "mine"


def killed_in(folder: Path, name: str, *inside: str) -> Path:
    """What a process leaves that is killed while it replaces ``name``."""
    room = folder / f".{name}.x7_q0abc"
    for each in inside:
        (room / each).mkdir(parents=True)
        (room / each / each).write_text(each)
    room.mkdir(exist_ok=True)
    return room


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    left = [killed_in(tmp_path, "x.txt"), killed_in(tmp_path, "model", "model")]
    mine = [tmp_path / ".git", tmp_path / ".tox.settings", tmp_path / "x.txt"]
    for path in mine:
        path.mkdir()
        (path / "mine").write_text("mine")
    assert stale_temporary_folders(tmp_path) == sorted(left)
    tidy(tmp_path)
    assert names(tmp_path) == [".git", ".tox.settings", "x.txt"]
    tidy(tmp_path / "missing")


@pytest.mark.parametrize(
    ("inside", "stays"),
    [(["model", "previous"], "model"), (["previous"], "previous")],
)
def test_a_folder_that_was_being_exchanged_is_there_again(
    tmp_path: Path, inside: list[str], stays: str
) -> None:
    killed_in(tmp_path, "model", *inside)
    tidy(tmp_path)
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == [stays]


def test_a_folder_that_is_there_is_not_exchanged_for_the_old_one(tmp_path: Path) -> None:
    killed_in(tmp_path, "model", "previous")
    (tmp_path / "model").mkdir()
    tidy(tmp_path)
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == []


@pytest.mark.parametrize("mode", ["a", "ab", "a+", "w", "wb"])
@pytest.mark.parametrize("kind", ["link", "link to nothing", "second name", "pipe", "folder"])
def test_nothing_is_written_in_place_but_into_a_file_of_ours(
    tmp_path: Path, kind: str, mode: str
) -> None:
    other, file = tmp_path / "other", tmp_path / "file"
    other.write_text("of somebody else")
    if kind == "link":
        file.symlink_to(other)
    elif kind == "link to nothing":
        file.symlink_to(tmp_path / "nothing")
    elif kind == "second name":
        file.hardlink_to(other)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    with pytest.raises((InputError, IsADirectoryError), match=r"is a link|Is a directory"):
        open_own(file, mode)
    assert other.read_text() == "of somebody else"
    assert not (tmp_path / "nothing").exists()


def test_a_file_of_ours_is_written_in_place(tmp_path: Path) -> None:
    for mode, content in (("w", "one"), ("a", "onetwo"), ("w", "three"), ("ab", "threefour")):
        word = {"one": "one", "onetwo": "two", "three": "three", "threefour": "four"}[content]
        with open_own(tmp_path / "file", mode) as handle:
            handle.write(word.encode() if "b" in mode else word)
        assert (tmp_path / "file").read_text() == content


def test_a_link_is_replaced_and_its_target_left(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "own").write_text("kept")
    for name in ("file", "model"):
        (tmp_path / name).symlink_to(tmp_path / "target")
    with atomic_replace(tmp_path / "model") as temporary:
        temporary.mkdir()
    assert not (tmp_path / "model").is_symlink()
    with atomic_replace(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "target" / "own").read_text() == "kept"
    assert names(tmp_path) == ["file", "model", "target"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_not_replaced(tmp_path: Path, linked: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "pipe"
    if linked:  # as /dev/stdout is
        path = tmp_path / "link"
        path.symlink_to(tmp_path / "pipe")
    before = names(tmp_path)
    with pytest.raises(InputError):
        write_text(path, "new")
    with pytest.raises(InputError):
        check_outputs(tmp_path, [path.name])
    assert (tmp_path / "pipe").is_fifo()
    assert path.is_symlink() == linked
    assert names(tmp_path) == before


def test_a_file_that_a_user_names_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("published")
    (tmp_path / "link").symlink_to(tmp_path / "page")
    with pytest.raises(InputError):
        check_outputs(tmp_path, ["link"])
    with pytest.raises(InputError):
        write_all(tmp_path, {"link": b"new"})
    assert (tmp_path / "link").read_text() == "published"
    check_outputs(tmp_path, ["page"])


def test_files_of_two_commands_never_lie_side_by_side(tmp_path: Path) -> None:
    write_all(tmp_path, {"page": b"1", "rows": b"1", "mined": b"1"})
    seen: list[dict[str, str]] = []
    rename = Path.rename

    def looking(path: Path, target: Path) -> Path:
        seen.append({p.name: p.read_text() for p in tmp_path.iterdir() if p.is_file()})
        return rename(path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", looking)
        write_all(tmp_path, {"page": b"2", "rows": b"2"}, ["mined", "never"])
    assert names(tmp_path) == ["page", "rows"]
    assert all(len(set(state.values())) <= 1 for state in seen)  # killed at any of these moments
    assert len(seen) == 5


@pytest.mark.parametrize("moment", range(5))
def test_what_is_written_together_fails_together(tmp_path: Path, moment: int) -> None:
    before = {"page": b"1", "rows": b"1", "mined": b"1"}
    write_all(tmp_path, before)
    rename, calls = Path.rename, []

    def failing(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == moment + 1:
            raise OSError(errno.EIO, "broken")
        return rename(path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", failing)
        with pytest.raises(InputError, match="cannot write"):
            write_all(tmp_path, {"page": b"2", "new": b"2"}, ["rows", "mined"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_room_of_a_killed_process_is_tidied(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("1")
    script = (
        "import os, sys; from pathlib import Path\n"
        "from isotrope.core.files import replace_together\n"
        "with replace_together(Path(sys.argv[1]), ['page', 'rows']) as new: os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert len(stale_temporary_folders(tmp_path)) == 1
    tidy(tmp_path)
    assert names(tmp_path) == ["page"]


def test_what_is_read_is_not_written(tmp_path: Path) -> None:
    file, folder = tmp_path / "grouped.jsonl", tmp_path / "data"
    file.write_text("mine")
    folder.mkdir()
    (folder / "a.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path)
    check_outputs(tmp_path, ["audit.json"], [file, folder, None, ["a text"]])
    for place in (tmp_path, tmp_path / "link"):
        with pytest.raises(InputError, match="is an input and would be overwritten"):
            check_outputs(place, ["audit.json", "grouped.jsonl"], [str(file)])
    with pytest.raises(InputError, match="is an input and would be overwritten"):
        check_outputs(folder, ["a.txt"], [folder])
    with pytest.raises(InputError, match="is a folder, not a file"):
        check_outputs(tmp_path, ["data"])
    with pytest.raises(InputError, match="is a file; give a folder"):
        check_outputs(file, ["audit.json"])
    assert file.read_text() == "mine"
