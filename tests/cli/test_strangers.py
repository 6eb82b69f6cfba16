"""A folder of a stranger: its names steer no terminal, reach no network and lead nowhere else."""

import csv
import errno
import gzip
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import yaml

import isotrope
from isotrope.cli import check
from isotrope.cli.search import _lines as lines_of
from isotrope.core import run_folder
from isotrope.core.errors import InputError
from isotrope.core.legible import LegibleStream, csv_text, legible
from isotrope.core.run_folder import RunFolder
from isotrope.core.table import table
from isotrope.core.trust import USER, known_to_hub, named_by
from isotrope.data.lines import open_bytes
from isotrope.encoders.sentence import SentenceEncoder
from tests.image_run import write_image_run, write_pictures
from tests.reports.folders import write_run
from tests.training.conftest import sentences

EVIL = "\x1b[31mred\x1b]0;title\x07\u202enl\nisotrope: error: fake\r\x9b"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "m"
    SentenceEncoder.scratch(
        sentences(60), width=8, layers=1, heads=1, vocabulary=200, max_length=32
    ).save(folder)
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every host and address that is looked up or connected to."""
    places: list[object] = []

    def refuse(*arguments: object, **_: object) -> None:
        places.append(arguments)
        raise OSError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    return places


_opened: list[str] = []


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[list[str]]:
    """What is opened or listed below ``outside``."""
    _opened.clear()
    yield _opened
    _opened.clear()


def _record(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and "/outside/" in f"{arguments[0]}/":
        _opened.append(str(arguments[0]))


sys.addaudithook(_record)


def no_trick(text: str) -> bool:
    return not set(text) & set("\x1b\x07\u202e\x9b\r")


def test_foreign_text_is_legible() -> None:
    assert no_trick(legible(EVIL))
    assert "\n" not in legible(EVIL)
    assert json.loads(f'"{legible(EVIL)}"') == EVIL
    assert legible("می\u200cخواهم, 👩\u200d🔬, é") == "می\u200cخواهم, 👩\u200d🔬, é"
    assert legible(os.fsdecode(b"a\xff")) == "a\\udcff"
    lines = table(["name", "n"], [[EVIL, "1"], ["b", "2"]]).splitlines()
    assert len(lines) == 4
    assert all(map(no_trick, lines))


def test_progress_that_nobody_reads_any_more_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as closed:
        for needed in (True, False):
            stream = LegibleStream(closed, needed=needed)
            with pytest.raises(BrokenPipeError) if needed else nullcontext():
                stream.write("step 1 of 2\n")
                stream.flush()
        with suppress(BrokenPipeError):  # closing writes the rest
            closed.close()


def test_all_that_the_command_line_prints_is_legible(capsys: pytest.CaptureFixture[str]) -> None:
    stream = LegibleStream(sys.stdout)
    print(EVIL, file=stream)
    stream.writelines([EVIL, "\n"])
    for move in ("\rbar 1", "\n", "\x1b[A", "\r"):  # as tqdm draws
        stream.write(move)
    printed = capsys.readouterr().out
    assert printed.endswith("\rbar 1\n\x1b[A\r")
    assert no_trick(printed.removesuffix("\rbar 1\n\x1b[A\r"))


@pytest.mark.parametrize("value", ["=cmd|'x'!A1", "+1+1", "-1+2", "@SUM(A1)", "\t=1", "-"])
def test_a_cell_of_a_table_is_no_formula(value: str) -> None:
    text = csv_text([value], [[value], [Path(value)]])
    assert [*csv.reader(text.splitlines())] == [[f"'{value}"]] * 3
    numbers = [-1.5, None, "a=b", "", "-0.25", "-1e-05", "-inf", "+3"]
    assert csv_text([], [numbers]) == "\n-1.5,,a=b,,-0.25,-1e-05,-inf,+3\n"


def test_every_table_for_a_spreadsheet_is_written_by_one_function() -> None:
    source = Path(isotrope.__file__).parent
    writers = {file.stem for file in source.rglob("*.py") if "csv.writer(" in file.read_text()}
    rows = {file.stem for file in source.rglob("*.py") if "csv.DictWriter(" in file.read_text()}
    assert (writers, rows) == ({"legible", "files"}, {"evaluators"}), (
        "files: ids; evaluators: numbers"
    )


def test_names_of_a_folder_forge_no_line(run, encoder: Path, tmp_path: Path) -> None:
    columns = tmp_path / "t.csv"
    columns.write_text('"\x1b[31mcol","b\nisotrope: error: fake"\n"a b","c d"\n"e f","g h"\n')
    for arguments in (
        ("audit", columns, "--encoder", encoder),
        ("evaluate", tmp_path / EVIL.replace("/", ""), "--sts", tmp_path),
        ("audit", tmp_path / EVIL, "--encoder", encoder),
        ("report", tmp_path / EVIL),
        (EVIL,),
    ):
        found = run(*arguments)
        assert no_trick(found.out + found.err)
        assert not any(line == "isotrope: error: fake" for line in found.err.splitlines())


def test_a_run_folder_asks_nobody(run, encoder: Path, tmp_path: Path, asked: list[object]) -> None:
    folder = write_run(tmp_path / "run")
    shutil.copytree(encoder, folder / "model")
    config = folder / "config.yaml"
    kept = [line for line in config.read_text().splitlines() if not line.startswith("files")]
    config.write_text("\n".join(["files: [evilorg/ds]", *kept]) + "\n")
    for verb in (["diagnose", folder], ["report", folder, "--diagnose", "-o", tmp_path / "r.html"]):
        found = run(*verb)
        assert found.code == 0, found.err
        (folder / "diagnosis.json").unlink()
    found = run("diagnose", folder)
    assert "the saved model could not be measured: " in found.out
    assert "evilorg/ds" in found.out
    assert asked == []


def _run_on(outside: Path, encoder: Path, folder: Path, seal: str) -> Path:
    """Write a run whose data and first encoder are elsewhere; return its folder."""
    if not outside.exists():
        shutil.copytree(encoder, outside / "encoder")
        rows = [f"{text}\t{text.upper()}\n" for text in sentences(60)]
        (outside / "a b.tsv").write_text("".join(rows))
    run = RunFolder(write_run(folder))
    shutil.copytree(encoder, run.model)
    names = {"files": [str(outside / "a b.tsv")], "encoder": str(outside / "encoder")}
    settings = yaml.safe_dump({**names, "objective": "infonce", "max-length": 8})
    run.write_settings(settings)
    sealed = run.config.read_text()
    changed = {
        "own": sealed,
        "none": settings,
        "wrong": f"{settings}# made here: {'0' * 64}\n",
        "of other settings": sealed.replace("infonce", "met"),
        "and more": f"{sealed}seed: 3\n",
    }
    run.config.write_text(changed[seal])
    return folder


@pytest.mark.parametrize("seal", ["none", "wrong", "of other settings", "and more"])
def test_what_only_a_strangers_run_names_is_not_opened(
    run, encoder: Path, tmp_path: Path, opened: list[str], seal: str
) -> None:
    outside = tmp_path / "outside"
    folder = _run_on(outside, encoder, tmp_path / "run", seal)
    opened.clear()
    for verb in (["diagnose", folder], ["report", folder, "--diagnose", "-o", tmp_path / "r.html"]):
        found = run(*verb)
        assert found.code == 0, found.err
        (folder / "diagnosis.json").unlink()
    found = run("diagnose", folder)
    assert "it is not opened, because only" in " ".join(found.out.split())
    (command,) = re.findall(r"`isotrope (diagnose .* --data=.*)`", found.out)
    assert opened == []

    found = run(*shlex.split(command))  # followed: the data are now named by the user
    assert found.code == 0
    assert "60 of 60 pairs" in found.out
    assert "it is not opened, because only" in " ".join(found.out.split())
    assert {*opened} == {str(outside / "a b.tsv")}


def test_what_a_run_made_here_names_is_opened(
    run, encoder: Path, tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    folder = _run_on(outside, encoder, tmp_path / "run", "own")
    found = run("diagnose", folder)
    assert "60 of 60 pairs" in found.out
    assert "probed" not in found.out
    assert {str(outside / "a b.tsv"), str(outside / "encoder/config.json")} <= {*opened}

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of another user"))
    run_folder._key.cache_clear()
    opened.clear()
    assert "is not opened" in run("diagnose", folder).out
    assert opened == []
    run_folder._key.cache_clear()


def test_data_that_a_result_names_are_not_opened(
    run, encoder: Path, tmp_path: Path, opened: list[str]
) -> None:
    outside = tmp_path / "outside"
    folder = _run_on(outside, encoder, tmp_path / "run", "own")
    result = json.loads((folder / "result.json").read_text())
    other = outside / "other.txt"
    other.write_text("")
    digests = {str(other): "0", str(outside / "a b.tsv"): "0"}
    result["details"]["data"] = {"digests": digests}
    (folder / "result.json").write_text(json.dumps(result))
    opened.clear()
    changed = f"changed since the run: {outside / 'a b.tsv'}"
    assert changed in " ".join(run("diagnose", folder).out.split())
    assert str(other) not in opened


def test_pictures_that_only_a_strangers_run_names_are_not_opened(
    run, tmp_path: Path, opened: list[str]
) -> None:
    data = write_pictures(tmp_path / "outside" / "blobs.npz")
    folder = write_image_run(tmp_path / "run", data)
    assert run("evaluate", folder, "--knn", "--device", "cpu").code == 0
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("# made", "# not made"))
    (folder / "metrics.csv").write_text("step,loss\n0,1\n10,0.5\n")
    opened.clear()
    found = run("evaluate", folder, "--knn", "--device", "cpu")
    assert found.code == 2
    assert f"use `isotrope evaluate {folder} --labels={data}`" in found.err
    found = run("diagnose", folder)
    assert found.code == 0
    assert "it is not opened" in found.out
    config.write_text(f"data: digits\nclasses: {data}\n")
    assert "it is not opened" in run("evaluate", folder, "--knn", "--device", "cpu").err
    assert opened == []
    assert "images, two crops of each" in run("diagnose", folder, "--data", data).out


def _full(**_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_key_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "isotrope" / "key"

    def key(home: object = tmp_path) -> bytes:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        run_folder._key.cache_clear()
        return run_folder._key()

    first = key()
    assert (first, len(first), file.stat().st_mode & 0o777) == (file.read_bytes(), 32, 0o600)
    assert key() == first
    assert [*file.parent.iterdir()] == [file]
    with monkeypatch.context() as full:
        full.setattr(tempfile, "NamedTemporaryFile", _full)
        assert key() == first, "a full or read-only disk keeps no one from reading the key"
    for spoilt in (lambda: file.chmod(0o644), lambda: file.write_bytes(b"")):
        spoilt()
        assert key() not in (first, b"")
        file.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    assert key("relative") != first
    assert not (tmp_path / "relative").exists()
    (tmp_path / "file").write_text("")
    assert len(key(tmp_path / "file")) == 32
    run_folder._key.cache_clear()


def test_within_a_folder_no_library_asks_either(asked: list[object], tmp_path: Path) -> None:
    from huggingface_hub import HfApi, constants

    before = constants.HF_HUB_OFFLINE
    with named_by(tmp_path):
        with pytest.raises(OSError, match=r"[Oo]ffline"):
            HfApi().repo_info("evilorg/ds")
        assert known_to_hub(["evilorg/ds"], "model")[0] is None
        with named_by(USER):  # what the user named
            assert "cannot be reached" in known_to_hub(["own/ds"], "model")[1]
    assert before == constants.HF_HUB_OFFLINE
    assert len(asked) > 0


def test_a_gzipped_file_that_unpacks_to_far_more_than_text_is_refused(
    run, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, line = tmp_path / "t.txt.gz", b"one line of text\n"
    file.write_bytes(gzip.compress(line * (3 << 20)))  # 51 MiB
    with open_bytes(file) as unpacked, pytest.raises(InputError, match="more than 200 times"):
        unpacked.read()
    # a command takes a minute for 32 MiB of lines
    monkeypatch.setattr(sys.modules[open_bytes.__module__], "_SMALL", 1 << 20)
    file.write_bytes(gzip.compress(line * (1 << 17)))
    found = run("audit", file, "--encoder", encoder)
    assert found.code == 2
    assert "unpacks to more than 200 times its size" in found.err


def test_scores_that_cannot_be_stored_are_printed(
    run, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("isotrope.core.files.sync", full)
    (tmp_path / "t.tsv").write_text("one text\tanother\na third\ta fourth\n")
    asked = ("--retrieval", tmp_path / "t.tsv", "--results", tmp_path / "r", "--device", "cpu")
    found = run("evaluate", encoder, *asked)
    assert found.code == 0
    assert "mrr@10" in found.out
    assert "retrieval was scored, but not stored: cannot write" in found.err
    assert "free some space" in found.err


def test_the_hits_of_a_search_turn_no_line_round(run, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a \u202etext\nb\u2066 text\x1b[31m\n")
    found = run("search", encoder, tmp_path / "t.txt", "a \u202equery", "--device", "cpu")
    assert found.code == 0
    assert no_trick(found.out)
    assert "\\u202e" in found.out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("-OO -m isotrope objectives", "without -OO"),
        ("-m isotrope --version > /dev/full", "No space left on device"),
        ("-m isotrope objectives --help > /dev/full", "No space left on device"),
    ],
)
def test_what_python_is_given_is_one_line(command: str, said: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} {command}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line


def test_a_model_is_read_from_its_own_folder(
    run, encoder: Path, tmp_path: Path, asked: list[object]
) -> None:
    model = shutil.copytree(encoder, tmp_path / "m")
    for base in (str(encoder), "evilorg/base", None):
        (model / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
        found = run("encode", model, tmp_path / "t.txt", "-o", tmp_path / "o.npy")
        (tmp_path / "t.txt").write_text("a text\n")
        found = run("encode", model, tmp_path / "t.txt", "-o", tmp_path / "o.npy")
        assert found.code == 2
        assert "merge adapter and model with peft" in found.err
    assert asked == []


@pytest.mark.parametrize("end", ["raise SystemExit(0)", "import os; os._exit(0)"])
def test_a_loss_that_ends_the_process_is_wrong(run, tmp_path: Path, end: str) -> None:
    file = tmp_path / "my.py"
    file.write_text(f"def my_loss(anchors, positives):\n    {end}\n")
    found = run("check", file)
    assert found.code == 1
    assert "a loss ended the process (exit code 0) WRONG" in " ".join(found.out.split())


def test_an_error_of_a_file_is_named(run, tmp_path: Path) -> None:
    file = tmp_path / "my.py"
    file.write_text(
        "import torch\n\nclass MyLoss(torch.nn.Module):\n    def __init__(self):\n"
        "        raise RuntimeError('no weights')\n"
    )
    found = run("check", file)
    assert found.code == 1
    assert "RuntimeError: no weights" in found.out
    assert "raised in my.py, line 5" in found.out
    assert "ended the process" not in found.out


def test_a_loss_that_does_not_end_is_wrong(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "LIMIT", 2.0)
    (tmp_path / "my.py").write_text("while True: pass\n")
    found = run("check", tmp_path / "my.py")
    assert found.code == 1
    assert "not finished after 2 s WRONG" in " ".join(found.out.split())
    assert "ten minutes" in " ".join(check.EPILOG.split())
    assert LIMIT == 600


LIMIT = check.LIMIT


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&-"])
def test_a_closed_stdout_is_one_line(closed: str) -> None:
    command = f"exec {sys.executable} -m isotrope objectives {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines == [] if "2>&-" in closed else "send standard output to a file" in lines[0]
    assert len(lines) <= 1


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.1, 0.2, 0.4])
def test_ctrl_c_at_once_is_one_line(moment: float) -> None:
    """Whenever it comes: nothing but our line, or what the interpreter itself has not yet begun."""
    script = (
        "import os, sys\n"
        "print('begun', flush=True)\n"
        "from isotrope.__main__ import main\n"
        "sys.argv = ['isotrope', 'simulate', 'dissipation', '--grid', '400']\n"
        "main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", "import isotrope.__main__, signal\n" + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.02 + moment)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert "Traceback" not in err
    assert process.returncode in (0, 130, 2)


def test_queries_on_standard_input_are_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    for raw, queries in (
        (b"\xef\xbb\xbfRiver\r\n\n \xc3\xa9t\xc3\xa9 \n", ["River", "été"]),
        (b"\xe9", None),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw), "ascii"))
        if queries is None:
            with pytest.raises(InputError, match="convert the queries to UTF-8"):
                lines_of(Path("-"))
        else:
            assert lines_of(Path("-")) == queries
