"""What is published is what the tag says, built and checked first, and without a password."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
FILES = ("pyproject.toml", "src/isotrope/__init__.py", "CITATION.cff", "CHANGELOG.md")


@pytest.fixture
def version() -> ModuleType:
    spec = importlib.util.spec_from_file_location("version", ROOT / ".ci" / "version.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that name a version, with a changelog that has this one."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    changelog = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    released = "## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n"
    (tmp_path / "CHANGELOG.md").write_text(changelog.replace("## [Unreleased]\n", released))
    return tmp_path


def test_all_files_name_one_version(version: ModuleType) -> None:
    found = version.versions()
    assert tuple(found) == FILES
    assert len({found[file] for file in FILES if file != "CHANGELOG.md"}) == 1


def test_a_tag_of_this_version_may_be_released(version: ModuleType, checkout: Path) -> None:
    assert version.main("v" + version.versions()["pyproject.toml"], checkout) == 0


@pytest.mark.parametrize("file", FILES)
def test_a_file_with_another_version_is_named(
    version: ModuleType, checkout: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (checkout / file).read_text(encoding="utf-8")
    (checkout / file).write_text(text.replace("0.1.0", "0.0.9", 1), encoding="utf-8")
    assert version.main("v0.1.0", checkout) == 1
    assert capsys.readouterr().err == f"{file} has the version 0.0.9, and the tag is v0.1.0\n"


def test_an_unreleased_changelog_is_named(
    version: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "CHANGELOG.md").write_text("## [Unreleased]\n")
    assert version.main("v0.1.0", checkout) == 1
    assert "CHANGELOG.md has the version none" in capsys.readouterr().err


def test_the_workflow_checks_before_it_publishes_and_knows_no_password() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs: dict[str, Any] = yaml.safe_load(text)["jobs"]
    run = "\n".join(step.get("run", "") for step in jobs["build"]["steps"])
    in_order = ("version.py", "make newcomer", "-m build", "-m twine check --strict")
    places = [run.index(part) for part in in_order]
    assert places == sorted(places)
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert not [step for step in jobs["publish"]["steps"] if "run" in step]
    assert "secrets." not in text
