"""Newer Pythons than the suite's: what needs no torch runs, and everything compiles.

Their builds of torch are gigabytes, so what needs one is not tried. An interpreter that is not on
this machine is skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"

# of the plainest environment there is, without any package: warnings are errors
EVERYTHING = """
import importlib, sys
from pathlib import Path

from isotrope.core.errors import MissingExtra

source = Path(sys.argv[1])
imported, lacking = [], []
for file in sorted(source.rglob("*.py")):
    compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True)
    module = ".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
    if module.endswith("__main__"):
        continue
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        assert not error.name.startswith("isotrope"), error
        lacking.append(module)
    except MissingExtra:
        lacking.append(module)
    else:
        imported.append(module)
print(len(lacking), *imported)
"""


def run(version: str, *words: str) -> str:
    done = subprocess.run(
        [f"python{version}", "-W", "error", "-B", "-s", *words],
        capture_output=True,
        text=True,
        # version managers answer with an error for versions that were not asked for
        env={**os.environ, "PYENV_VERSION": version, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["3.12", "3.13"])
def version(request: pytest.FixtureRequest) -> str:
    found = str(request.param)
    try:
        run(found, "-c", "")
    except (OSError, AssertionError):
        pytest.skip(f"no Python {found} on this machine")
    return found


@pytest.mark.slow
def test_every_module_compiles_and_lacks_nothing_but_packages(version: str) -> None:
    lacking, *imported = run(version, "-c", EVERYTHING, str(SOURCE)).split()
    assert {"isotrope", "isotrope.cli.main", "isotrope.core.errors"} <= {*imported}
    if int(lacking):  # an environment without torch
        assert len(imported) >= 20


def test_the_command_line_explains_itself(version: str) -> None:
    assert run(version, "-m", "isotrope", "--help") == run_here("--help")
    assert run(version, "-m", "isotrope", "--version") == run_here("--version")


def run_here(word: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "isotrope", word], capture_output=True, text=True, check=True
    ).stdout
