"""Losses, their components and the diagnosis need torch and numpy, nothing else."""

import subprocess
import sys
import textwrap

# everything that neither Python nor torch nor numpy brings is not there
ALONE = """
import importlib.abc
import importlib.metadata as metadata
import re
import sys


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


there = brought("torch", brought("numpy", set()))
modules = {
    module
    for module, names in metadata.packages_distributions().items()
    if there & {name.lower().replace("_", "-") for name in names}
}
modules |= {*sys.stdlib_module_names, "isotrope"}


class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if (top := name.partition(".")[0]) not in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=top)


sys.meta_path.insert(0, Nothing())
"""


def alone(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ALONE + textwrap.dedent(program)], capture_output=True, text=True
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
                if one.name in ("isotrope.core.settings", "isotrope.diagnostics.audit.options"):
                    continue  # of the command line: they need pydantic
                importlib.import_module(one.name)
                print(one.name)
        """
    )
    assert len(shown.split()) > 80


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
