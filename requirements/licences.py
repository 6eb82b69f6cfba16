"""The licence of every locked package is one that everybody may use ours beside.

``python requirements/licences.py`` reads the metadata of the installed packages.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCKS = ("lock.txt", "torch.txt")
ALLOWED = {
    *("mit", "mit-cmu", "mit-0", "bsd", "bsd-2-clause", "bsd-3-clause", "0bsd", "apache-2.0"),
    *("isc", "psf-2.0", "python-2.0", "mpl-2.0", "zlib", "cc0-1.0", "bsl-1.0", "unlicense"),
    *("cnri-python", "hpnd", "llvm-exception"),
}
# how packages spell them that give no SPDX expression
WORDS = {
    "mit license": "mit", "apache software license": "apache-2.0", "bsd license": "bsd",
    "mozilla public license 2.0 (mpl 2.0)": "mpl-2.0", "isc license (iscl)": "isc",
    "python software foundation license": "psf-2.0", "3-clause bsd license": "bsd-3-clause",
    "apache 2.0 license": "apache-2.0", "apache 2.0": "apache-2.0", "psfl": "psf-2.0",
}  # fmt: skip


def parts(text: str) -> set[str]:
    """Return the licences that an expression names."""
    whole = text.lower().strip()
    if whole in WORDS:
        return {WORDS[whole]}
    words = (word.strip("() ") for word in re.split(r"\s+(?:and|or|with)\s+", whole))
    return {WORDS.get(word, word) for word in words}


def licences(package: str) -> set[str]:
    """Return what an installed package says of its licence."""
    about = metadata.metadata(package)
    if expression := about.get("License-Expression"):
        return parts(expression)
    named = [c.rpartition("::")[2] for c in about.get_all("Classifier") or () if "License ::" in c]
    if named:
        return {licence for name in named for licence in parts(name)}
    return parts(((about.get("License") or "").strip().splitlines() or [""])[0])


def refused(name: str) -> set[str]:
    """Return the licences of an installed package that are not allowed."""
    return {licence or "says nothing" for licence in licences(name) - ALLOWED}


def main() -> int:
    """Print the packages whose licence is not allowed; return 1 if there are some."""
    locked = "".join((HERE / name).read_text(encoding="utf-8") for name in LOCKS)
    names = re.findall(r"^([a-z0-9][a-z0-9._-]*)==", locked, re.MULTILINE)
    absent, wrong = [], 0
    for name in names:
        try:
            bad = refused(name)
        except metadata.PackageNotFoundError:
            absent.append(name)
            continue
        if bad:
            print(f"licence not allowed, or unknown: {name}: {', '.join(sorted(bad))}")
            wrong += 1
    rest = f"; not installed here: {', '.join(absent)}" * bool(absent)
    print(f"licences of {len(names) - len(absent)} packages looked at, {wrong} refused{rest}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
