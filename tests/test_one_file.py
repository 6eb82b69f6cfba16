"""A new objective is one file: command line, training, diagnosis, docs and tests all find it."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.conftest import sentences

ROOT = Path(__file__).resolve().parents[1]

TOY = '''
"""A toy: InfoNCE's pull without its push."""

from typing import Annotated

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.core.hyper import Paper
from isotrope.paradigm.objective import Objective


class ToyLoss(Objective, paper=Paper("No paper", "nobody, never", "paper 00x, eq. 0")):
    """Pull the positive with a constant force.

    Loss: L_i = -p s_ii'.

    Gradient: GD = 1; W = 0; the positive is pulled by p.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: none.

    Example:
        >>> import torch
        >>> float(ToyLoss(force=2.0)(torch.eye(2), torch.eye(2)))
        -2.0
    """

    force: Annotated[float, Hyper("p", "pull of the positive", above=0)] = 1.0

    takes_negatives = False
    pairwise = False
    invariances = frozenset({"rotation", "permutation", "scale", "view swap"})

    def formula(self, pairs: Pairs) -> Tensor:
        return -self.force * pairs.positive

    def components(self, pairs: Pairs) -> Terms:
        one = torch.ones_like(pairs.positive)
        weight = torch.zeros_like(pairs.similarity())
        return Terms(one, weight, self.force * one, scale=1 / len(one))
'''


PAGE = """
import sys
from pathlib import Path

from docs.generate.objective_pages import write_pages
from isotrope.paradigm import registry

for plugin in sys.argv[2:]:
    registry.load_plugin(Path(plugin))
registry.find("toyloss")
write_pages(["toyloss"], Path("pages"))
"""


@pytest.fixture(params=["in the folder", "--plugin"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """The toy as a file in a copy of the package, or outside it: flags and environment."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", dirs_exist_ok=True)
    shutil.copytree(ROOT / "docs" / "generate", tmp_path / "docs" / "generate")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    inside = request.param == "in the folder"
    folder = tmp_path / "src" / "isotrope" / "objectives" if inside else tmp_path
    (folder / "toy_loss.py").write_text(TOY)
    (tmp_path / "sentences.txt").write_text("\n".join(sentences(200)) + "\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    return [] if inside else ["--plugin", "toy_loss.py"], environment


@pytest.mark.nightly  # processes that import everything
def test_a_toy_in_one_file_is_found_everywhere(
    place: tuple[list[str], dict[str, str]], tmp_path: Path
) -> None:
    flags, environment = place

    def python(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    few = ["--max-steps", "2", "--batch-size", "16", "--log-every", "1", "--no-progress"]
    settings = ["--encoder", "scratch", "--objective", "toyloss", "--objective.force", "2"]
    commands = [
        ["objectives"],
        ["objectives", "toyloss"],
        ["check", "toy_loss.py" if flags else "toyloss"],
        ["train", "sentences.txt", "--output", "run", *settings, *few],
        ["simulate", "dissipation", "--objective", "toyloss", *SMALL],
    ]
    shown = [c if c[0] == "check" else [*c, *flags] for c in commands]
    said = python("-c", GUARDED, json.dumps(shown))
    every, card, proof, _, seen = json.loads(said.splitlines()[-1])
    # the command line: the list, the card with its flag, the proof
    assert "toyloss" in every
    assert "nobody, never" in card
    assert "--objective.force" in card
    assert "WRONG" not in proof
    # training, with the components measured in every run
    with (tmp_path / "run" / "metrics.csv").open() as lines:
        (first, *_) = csv.DictReader(lines)
    assert float(first["dissipation"]) == 1
    # diagnosis: its components over the angles
    assert "ToyLoss" in seen
    # docs
    (tmp_path / "one_page.py").write_text(PAGE)
    python("one_page.py", *flags)
    assert "**Loss.** L\\_i = -p s\\_ii'." in (tmp_path / "pages" / "toyloss.md").read_text()
    assert (tmp_path / "pages" / "toyloss.svg").is_file()
    # tests
    quiet = ["-q", "-p", "no:cacheprovider", "-m", "not nightly", "-k", "toyloss or doctests"]
    passed = python("-m", "pytest", "tests/objectives/test_registry_wide.py", *quiet, *flags)
    assert " passed" in passed
    assert int(passed.split(" passed")[0].split()[-1]) >= 15


SMALL = ["--batches", "4", "--grid", "5", "--output", "simulated"]

# importing everything takes longer than all of these together: one interpreter runs them
GUARDED = """
import contextlib, io, json, sys
from isotrope.cli.main import guarded
said = []
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = guarded(line)
    assert code == 0, (line, code, out.getvalue())
    said.append(out.getvalue())
print(json.dumps(said))
"""
