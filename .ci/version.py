"""Refuse a tag that is not the version of every file that names one: `.ci/version.py v0.1.0`.

The version is written down, not taken from the tag: a shallow clone and a tarball have no tags.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def versions(root: Path = ROOT) -> dict[str, str]:
    """Return the version that each file has; of the changelog, the newest that is released."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = {
        "src/isotrope/__init__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (\S+)$",
        "CHANGELOG.md": r"^## \[(\d.*?)\]",
    }
    found = {"pyproject.toml": str(project["project"]["version"])}
    for file, pattern in patterns.items():
        match = re.search(pattern, (root / file).read_text(encoding="utf-8"), re.MULTILINE)
        found[file] = match[1] if match else "none"
    return found


def main(tag: str, root: Path = ROOT) -> int:
    """Print the files that name another version than the tag; return 1 if there are some."""
    wrong = {file: found for file, found in versions(root).items() if f"v{found}" != tag}
    for file, found in wrong.items():
        print(f"{file} has the version {found}, and the tag is {tag}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
