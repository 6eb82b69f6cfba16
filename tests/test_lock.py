"""The lock files: complete, hashed, true to pyproject.toml, and free of torch and of addresses."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {
    name: (ROOT / "requirements" / name).read_text(encoding="utf-8")
    for name in ("lock.txt", "mteb.txt", "docs.txt", "package.txt")
}
PINS, MTEB, DOCS, PACKAGE = (
    dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", lock, flags=re.MULTILINE))
    for lock in LOCKS.values()
)


def named(requirement: str) -> str:
    """The name in a requirement as the lock spells it."""
    return re.split(r"[\s\[=<>!~;]", requirement)[0].lower().replace("_", "-")


def test_every_requirement_of_the_project_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    wanted += [r for extra in project["project"]["optional-dependencies"].values() for r in extra]
    missing = (
        {named(r) for r in wanted}
        - set(PINS | MTEB | DOCS | PACKAGE)
        - {"isotrope", "torch", "trackio", "wandb"}  # of these two the tests have stand-ins
    )
    assert not missing, f"run `make lock`: {sorted(missing)}"


@pytest.mark.parametrize(
    ("name", "pins", "least"),
    [
        ("lock.txt", PINS, 50),
        ("mteb.txt", MTEB, 3),
        ("docs.txt", DOCS, 20),
        ("package.txt", PACKAGE, 5),
    ],
)
def test_every_pin_has_hashes(name: str, pins: dict[str, str], least: int) -> None:
    blocks = re.split(r"^(?=[a-z0-9])", LOCKS[name], flags=re.MULTILINE)
    assert len([b for b in blocks if "==" in b and "--hash=sha256:" in b]) == len(pins) > least


@pytest.mark.parametrize(
    ("name", "pins"),
    [("mteb", MTEB), ("zensical", DOCS), ("twine", PACKAGE)],
)
def test_what_only_one_thing_needs_is_installed_for_it_only(
    name: str, pins: dict[str, str]
) -> None:
    assert name in pins
    assert not set(PINS) & set(pins)


@pytest.mark.parametrize("kept_out", ["torch", "torchvision", "triton"])
def test_what_depends_on_the_machine_stays_out(kept_out: str) -> None:
    assert kept_out not in PINS | MTEB | DOCS | PACKAGE
    assert not [name for name in PINS | MTEB | DOCS | PACKAGE if name.startswith("nvidia")]


@pytest.mark.parametrize("name", LOCKS)
def test_no_address_or_folder_of_the_machine_that_wrote_it(name: str) -> None:
    assert not re.search(r"://|^-|^/| @ ", LOCKS[name], flags=re.MULTILINE)


def test_the_malicious_releases_of_lightning_are_not_locked() -> None:
    assert PINS["lightning"] not in {"2.6.2", "2.6.3"}
    assert PINS["pytorch-lightning"] not in {"2.6.2", "2.6.3"}


def test_what_several_need_has_one_version() -> None:
    for one, other in ((MTEB, DOCS), (MTEB, PACKAGE), (DOCS, PACKAGE)):
        both = set(one) & set(other)
        assert {name: one[name] for name in both} == {name: other[name] for name in both}
