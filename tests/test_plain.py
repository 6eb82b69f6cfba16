"""Losses, their components and the diagnosis need torch and numpy, nothing else."""

import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

# everything that neither Python nor torch nor numpy brings is not there
ALONE = """
import importlib.metadata as metadata
import re
import sys
import sysconfig


def brought(name, found):
    name = name.lower().replace("_", "-")
    if name in found:
        return found
    try:
        needs = metadata.distribution(name).requires or []
    except metadata.PackageNotFoundError:
        return found
    found.add(name)
    for need in needs:
        if "extra ==" not in need:
            brought(re.match(r"[\\w.-]+", need)[0], found)
    return found


def every(names):
    found = set()
    for name in names:
        brought(name, found)
    return found


there = brought("torch", brought("numpy", set()))
modules = {
    module
    for module, names in metadata.packages_distributions().items()
    if there & {name.lower().replace("_", "-") for name in names}
}
modules |= {*sys.stdlib_module_names, sysconfig._get_sysconfigdata_name(), "isotrope"}


class Only:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        there = name.partition(".")[0] in modules
        return self.finder.find_spec(name, path, target) if there else None


sys.meta_path[:] = map(Only, sys.meta_path)
"""
REQUIREMENTS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def alone(program: str, *requirements: str) -> str:
    """Run a program that finds torch, numpy and these requirements, and what they require."""
    names = [re.split(r"[^\w.-]", requirement)[0] for requirement in requirements]
    code = ALONE.replace('("numpy", set())', f'("numpy", every({names!r}))')
    done = subprocess.run(
        [sys.executable, "-c", code + textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_others_are_not_there() -> None:
    """Or the tests below could not fail."""
    shown = alone(
        """
        for name in ("scipy", "lightning", "transformers", "sentence_transformers", "pydantic"):
            try:
                __import__(name)
            except ModuleNotFoundError:
                print("absent")
        """
    )
    assert shown.split() == ["absent"] * 5


def test_losses_and_diagnosis_need_torch_and_numpy_only() -> None:
    shown = alone(
        """
        import torch, isotrope
        from isotrope.paradigm import registry

        torch.manual_seed(0)
        z0 = torch.randn(16, 8, requires_grad=True)
        z1 = torch.randn(16, 8, requires_grad=True)
        for name in registry.names():
            criterion = registry.build(name)
            if criterion.space != "logits":
                criterion(z0, z1).backward()
        assert torch.isfinite(z0.grad).all()
        met = isotrope.objectives.MET()
        print(met.terms(z0.detach(), z1.detach()).dissipation.shape)
        print(isotrope.decompose(met, z0.detach(), z1.detach()).gradient.shape)
        print(isotrope.objectives.BarlowTwins().modify(dissipation="margin:0.3").name)
        anatomy = isotrope.Doctor(every=1, temperature=0.05)
        for _ in range(30):
            loss = isotrope.objectives.InfoNCE()(z0, z1)
            anatomy.observe(loss)
            loss.backward()
        print(anatomy.diagnose(batch_size=16))
        """
    )
    assert "torch.Size([16])\ntorch.Size([16, 8])\n" in shown
    assert "verdict: " in shown


def test_every_module_of_the_lower_floors_can_be_imported() -> None:
    shown = alone(
        """
        import importlib, pkgutil

        for room in ("core", "kernels", "measures", "paradigm", "objectives", "diagnostics"):
            package = importlib.import_module(f"isotrope.{room}")
            for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                if one.name.endswith((".settings", ".options")):
                    continue  # they read settings, which needs pydantic
                importlib.import_module(one.name)
                print(one.name)
        """
    )
    assert len(shown.split()) > 80


COMMANDS = """
import contextlib, sys
from isotrope.cli.main import guarded

with contextlib.redirect_stderr(sys.stdout):
    for command in {commands!r}:
        print(guarded(command.split()))
"""


def test_a_command_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a b c\n" * 20)
    wanted = {
        f"train {texts} --output {tmp_path}/text": "train",
        f"train-images digits --output {tmp_path}/images": "train",
        f"sweep train {texts} --vary batch-size=2,4 --output {tmp_path}/sweep": "sweep",
        f"encode all-MiniLM-L6-v2 {texts} --output {tmp_path}/rows.npy": "train",
        "diagnose all-MiniLM-L6-v2": "train",
        f"simulate ratio --output {tmp_path}/simulated": "report",
        "--print-completion bash": "completion",
    }
    shown = alone(COMMANDS.format(commands=[*wanted]), *REQUIREMENTS["dependencies"]).splitlines()
    assert shown[1::2] == ["2"] * len(wanted), shown
    for line, extra in zip(shown[::2], wanted.values(), strict=True):
        assert f"run pip install '.[{extra}]'" in line


def test_the_extra_of_the_report_has_all_that_a_report_needs(tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    log.write_text("step,loss\n1,1.0\n2,0.5\n")
    page = tmp_path / "page.html"
    needed = [*REQUIREMENTS["dependencies"], *REQUIREMENTS["optional-dependencies"]["report"]]
    shown = alone(COMMANDS.format(commands=[f"report {tmp_path} --output {page}"]), *needed)
    assert shown.splitlines()[-2:] == [str(page), "0"]


def test_importing_costs_next_to_nothing() -> None:
    """It loads nothing but the package itself, and of core what looks its names up."""
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, torch; before = set(sys.modules); import isotrope; "
            "print(*sorted(set(sys.modules) - before))",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.split() == ["isotrope", "isotrope.core"]
