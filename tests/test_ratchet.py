"""`.ci/ratchet.py`: what it counts, and that a number only falls unless somebody says why."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
WIDE = ", ".join("abcdefghi")
MODULE = f'''
"""Of a module there is nothing else to say."""

import os  # noqa: F401


def wide({WIDE}):
    """What is said anew.

    Args:
        a: of the nine.
        b: The second one.
    """
    raise ValueError("the record is none")


def long():
    """Say nothing."""
{"    print()" + chr(10) * 61}    return 1
'''
ROOM = "if TYPE_CHECKING:\n    from isotrope.room.file import known as known\n"
PAPER = """from isotrope.room import known, unknown
from isotrope.room.file import known
import isotrope.room.file
x = 1
"""
NUMBERS = {
    "src lines": MODULE.count("\n") + 2,
    "src files": 2,
    "papers lines": 4,
    "private imports of papers": 3,
    "src files above 500 lines": 0,
    "function bodies above 60 lines": 1,
    "functions of nine or more parameters": 1,
    "exemptions": 1,
    "prose fragments": 5,
    "unplain words": 5,
}


@pytest.fixture
def ratchet() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ratchet", ROOT / ".ci" / "ratchet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(root: Path, raised: str = "", **changes: int) -> None:
    numbers = NUMBERS | {name.replace("_", " "): value for name, value in changes.items()}
    lines = [f'"{name}" = {number}' for name, number in numbers.items()]
    text = "\n".join(["[most]", *lines, "", "[raised]", raised, ""])
    (root / ".ci").mkdir(exist_ok=True)
    (root / ".ci" / "ratchet.toml").write_text(text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "papers").mkdir()
    (tmp_path / "src" / "one.py").write_text(MODULE)
    (tmp_path / "papers" / "one.py").write_text(PAPER)
    (tmp_path / "src" / "isotrope" / "room").mkdir(parents=True)
    (tmp_path / "src" / "isotrope" / "room" / "__init__.py").write_text(ROOM)
    (tmp_path / "README.md").write_text("Read further.\n`anew`\nIt is computed anew.\n")
    (tmp_path / "SECURITY.md").write_text("Of these, `Of` one is none.\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "LOG.md").write_text("What came of it was said anew.\n")
    (tmp_path / "docs" / "faq.md").write_text("Two are told apart; further rows are not.\n")
    record(tmp_path)
    return tmp_path


def test_it_counts(ratchet: ModuleType, checkout: Path) -> None:
    assert ratchet.measured(checkout) == NUMBERS
    assert ratchet.main(checkout, []) == 0


@pytest.mark.parametrize("name", [name for name, number in NUMBERS.items() if number])
def test_it_names_what_is_above_its_record(
    name: str, ratchet: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(checkout, **{name.replace(" ", "_"): NUMBERS[name] - 1})
    assert ratchet.main(checkout, []) == 1
    told = capsys.readouterr()
    assert f"{name}: {NUMBERS[name]:,} (ABOVE THE RECORD of {NUMBERS[name] - 1})" in told.out
    assert f"best value so far of {name}:" in told.err


def test_lowering_writes_what_is_smaller_and_raises_nothing(
    ratchet: ModuleType, checkout: Path
) -> None:
    record(checkout, src_lines=10_000, exemptions=0)
    assert ratchet.main(checkout, ["--lower"]) == 1
    text = (checkout / ".ci" / "ratchet.toml").read_text()
    assert f'"src lines" = {NUMBERS["src lines"]}\n' in text
    assert '"exemptions" = 0\n' in text


def test_raising_needs_a_reason(
    ratchet: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=checkout, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    record(checkout, src_files=3)
    assert ratchet.main(checkout, []) == 1
    assert "raises src files without a new reason" in capsys.readouterr().err
    git("commit", "-qam", "raised")
    assert ratchet.main(checkout, []) == 1  # a commit does not make it right
    record(checkout, '"src files" = "a reader of its own"', src_files=3)
    git("commit", "-qam", "raised, with a reason", "--amend")
    assert ratchet.main(checkout, []) == 0
    record(checkout, '"src files" = "a reader of its own"', src_files=4)
    assert ratchet.main(checkout, []) == 1  # the reason was for another rise
