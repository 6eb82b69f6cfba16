"""The command as a whole: help, speed of help, errors, exit codes."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isotrope.cli import main
from isotrope.cli.command import load
from isotrope.cli.main import VERBS

from .conftest import Ran

HEAVY = {"torch", "transformers", "sentence_transformers", "lightning", "sklearn", "scipy", "numpy"}


def test_help_teaches_by_example(run) -> None:
    found = run("--help")
    assert found.code == 0
    for verb in VERBS:
        assert f"\n  {verb} " in found.out
    assert "isotrope train sentences.txt" in found.out


def test_without_arguments_help_and_code_2(run) -> None:
    found = run()
    assert found.code == 2
    assert "commands:" in found.out


def test_home_is_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    command = load("encode")
    for given, read in (("~/x.npy", tmp_path / "x.npy"), ("x~.npy", Path("x~.npy"))):
        values = command.values(command.parser(), ["m", "t.txt", f"--output={given}"])
        assert command.settings.read(values).output == read


def test_version(run) -> None:
    assert run("--version").out.startswith("isotrope 0.")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(run, verb: str) -> None:
    found = run(verb, "--help")
    assert found.code == 0
    assert f"isotrope {verb}" in found.out
    assert "example" in found.out


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom isotrope.cli.main import guarded\n"
        f"try: guarded({arguments!r})\nexcept SystemExit: pass\n"
        f"print('LOADED', sorted({HEAVY!r} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "LOADED []" in out


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, isotrope; print(sorted({HEAVY!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_names_of_the_package_are_there() -> None:
    import isotrope

    assert dir(isotrope) == sorted(isotrope.__all__)
    assert all(getattr(isotrope, name) for name in isotrope.__all__)
    with pytest.raises(AttributeError, match="module 'isotrope' has no attribute 'learn'"):
        isotrope.learn  # noqa: B018


def _ends_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object) -> int:
        raise error

    monkeypatch.setattr(main, "_dispatch", end)


def test_memory_may_be_full_before_a_command_is_given(monkeypatch, capsys) -> None:
    _ends_with(MemoryError(), monkeypatch)
    assert main.guarded([]) == 2
    assert "not enough memory" in capsys.readouterr().err


def test_a_text_that_ends_the_process_is_printed(monkeypatch, capsys) -> None:
    _ends_with(SystemExit("the plugin needs a key"), monkeypatch)
    assert main.guarded(["train"]) == 1
    assert capsys.readouterr().err == "the plugin needs a key\n"


def test_unknown_verb_names_the_nearest(run) -> None:
    found = run("trian", "x.txt")
    assert found.code == 2
    assert found.err == (
        "isotrope: error: unknown command 'trian' (did you mean 'train'?); known: "
        + ", ".join(VERBS)
        + "\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["train"],
        ["train", "nowhere.txt", "--output", "run"],
        ["train", "nowhere.txt", "--output", "run", "--batch-size", "1"],
        ["train", "nowhere.txt", "--output", "run", "--bath-size", "1"],
        ["train", "nowhere.txt", "--output", "run", "--objective", "infonec"],
        ["train", "nowhere.txt", "--output", "run", "--objective.temperature"],
        ["train", "nowhere.txt", "--output", "run", "--objective.temperature", "hot"],
        ["train", "nowhere.txt", "--output", "run", "--config", "nowhere.yaml"],
        ["evaluate", "all-MiniLM-L6-v2"],
        ["evaluate", "all-MiniLM-L6-v2", "--sts", "nowhere"],
        ["evaluate", "all-MiniLM-L6-v2", "--retrieval", "nowhere"],
        ["encode", "all-MiniLM-L6-v2", "nowhere.txt", "-o", "out.npy"],
        ["encode", "all-MiniLM-L6-v2", "nowhere.txt", "-o", "out.csv"],
        ["search", "all-MiniLM-L6-v2", "nowhere.txt", "query"],
        ["search", "all-MiniLM-L6-v2", "nowhere.txt", "query", "--top", "0"],
        ["objectives", "infonec"],
        ["objectives", "--plugin", "nowhere.py"],
        ["report", "nowhere"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_code_2(
    run, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(*arguments)
    assert found.code == 2
    assert found.err.startswith("isotrope: error: ")
    assert found.err.count("\n") == 1
    assert "Traceback" not in found.err
    assert found.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--", "-x.tsv"], ["--output", "run", "--", "-x.tsv"]])
def test_two_dashes_end_the_flags(
    run, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run("train", *words)
    assert found.code == 2
    assert "unrecognized" not in found.err


def test_a_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m isotrope --help | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_a_slow_import_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Ran]
) -> None:
    (tmp_path / "slow_library.py").write_text("import time\ntime.sleep(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("isotrope.cli.main._SILENT", 0.1)

    class Slow:
        spelling = str

        def __call__(self, words: list[str]) -> int:
            importlib.import_module("slow_library")
            return 0

    monkeypatch.setattr("isotrope.cli.command.load", lambda verb: Slow())
    assert run("train").err == "loading libraries, such as torch and transformers\n"
    assert run("train").err == ""  # loaded already
    sys.modules.pop("slow_library")
    assert run("train", "--no-progress").err == ""
