"""What continuous integration leaves out has not changed."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def script(tmp_path: Path) -> ModuleType:
    """It, in a repository of its own whose commits are of days 0, 1 and 5."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "changed.py").write_text((ROOT / ".ci" / "changed.py").read_text())

    def git(*words: str, day: int = 0) -> None:
        when = f"{1_700_000_000 + day * 86_400} +0000"
        names = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in NAMED}
        dates = {"GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when}
        env = {**os.environ, **names, **dates, "HOME": str(tmp_path)}
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, env=env)

    git("init", "-q", ".")
    for day, file in ((0, "a.txt"), (1, "docs/page.md"), (5, "papers/bench.py")):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("something")
        git("add", file)
        git("commit", "-q", "-m", file, day=day)
    spec = importlib.util.spec_from_file_location("changed", tmp_path / ".ci" / "changed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMED = ("NAME", "EMAIL")


def test_what_changed_in_three_days_is_run(script: ModuleType, capsys) -> None:
    assert script.main("papers") == 0
    assert script.main("docs") == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("docs: unchanged (since ")
    assert script.main("docs", "HEAD~2") == 0


def test_a_file_that_went_elsewhere_counts(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs" / "page.md").rename(tmp_path / "papers" / "page.md")
    assert script.main("docs") == 0


def test_a_shallow_clone_runs_everything(script: ModuleType, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    words = ["git", "clone", "-q", "--depth", "1", tmp_path.as_uri(), str(shallow)]
    subprocess.run(words, check=True)
    file = shallow / ".ci" / "changed.py"
    file.parent.mkdir()
    file.write_text((ROOT / ".ci" / "changed.py").read_text())
    words = [sys.executable, str(file), "docs"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "docs: to be run (nothing to compare with)\n")


def test_everything_is_run_where_nothing_is_known(script: ModuleType, tmp_path: Path) -> None:
    script.DAYS *= 100
    assert script.main("docs") == 0
    assert script.main("docs", "no-such-commit") == 0


def test_what_everything_depends_on_counts(script: ModuleType) -> None:
    assert script.changed("papers", ["requirements/torch.txt"])
    assert not script.changed("papers", ["docs/LOG.md"])


def imported(file: Path) -> set[str]:
    """The packages of isotrope that a file imports."""
    modules = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in modules if name.startswith("isotrope.")}


@pytest.mark.parametrize(("part", "folder"), [("papers", "papers"), ("docs", "docs/generate")])
def test_a_part_counts_every_package_that_it_imports(script: ModuleType, part, folder) -> None:
    packages = set.union(*map(imported, (ROOT / folder).rglob("*.py")))
    assert {"core", "training"} <= packages
    files = [f"src/isotrope/{name}/" for name in packages]
    assert not [file for file in files if not script.changed(part, [file])]


def test_every_part_is_of_this_repository(script: ModuleType) -> None:
    for part in script.PARTS:
        assert all((ROOT / path).exists() for path in script.PARTS[part]), part
