"""Has a part of the repository changed lately? Exit code 0: yes, or nobody knows; 1: no.

    python .ci/changed.py papers|docs [BASE]

What takes long and depends on few files runs in continuous integration when these have changed;
`make nightly` runs everything. A fresh clone does not say what was there when CI last ran, so the
comparison is with BASE or, without one, with the newest commit on the line of main that is three
days older than the last one: a submission is younger than that. A shallow clone has no such commit,
and everything runs.
"""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

DAYS = timedelta(days=3)
ALWAYS = (".ci/", "Makefile", "pyproject.toml", "requirements/", "tests/conftest.py")
PARTS = {
    "papers": (
        *("papers/", "tests/papers/", "examples/docstrings.py"),
        *("src/isotrope/objectives/", "src/isotrope/diagnostics/", "src/isotrope/training/"),
        *("src/isotrope/kernels/", "src/isotrope/paradigm/", "src/isotrope/data/"),
        *("src/isotrope/measures/", "src/isotrope/reports/", "src/isotrope/encoders/"),
        *("src/isotrope/core/", "src/isotrope/evaluation/", "src/isotrope/sweeps/"),
    ),
    "docs": (
        *("docs/", "mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/docs/"),
        "src/isotrope/",  # pages and notebooks run commands, which call every package
    ),
}


def git(*words: str) -> str:
    """Return what git prints, in this repository."""
    here = Path(__file__).resolve().parents[1]
    done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
    return done.stdout


def base() -> str:
    """Return the commit to compare with, "" where there is none so old."""
    newest, *others = [
        (int(seconds), commit)
        for seconds, commit in (
            line.split() for line in git("log", "--first-parent", "--format=%ct %H").splitlines()
        )
    ]
    old = newest[0] - DAYS.total_seconds()
    return next((commit for seconds, commit in others if seconds <= old), "")


def changed(part: str, files: list[str]) -> bool:
    """Tell whether one of the files belongs to the part, or to what everything depends on."""
    return any(file.startswith((*PARTS[part], *ALWAYS)) for file in files)


def main(part: str, since: str = "") -> int:
    """Say what is known of a part on a line, and return the exit code."""
    try:
        since = since or base()
        # both names of a file that was moved, and what is not committed
        files = git("diff", "--name-only", "--no-renames", since).splitlines() if since else None
    except (OSError, subprocess.CalledProcessError):
        files = None
    found = files is None or changed(part, files)
    why = "nothing to compare with" if files is None else f"since {since[:12]}"
    print(f"{part}: {'to be run' if found else 'unchanged'} ({why})")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
