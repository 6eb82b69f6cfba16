"""Hold sizes, exemptions and habits of the code at the best value they ever had.

    python .ci/ratchet.py            # exit code 1 if a number is above its record
    python .ci/ratchet.py --lower    # write the numbers that have become smaller into the record

The record is .ci/ratchet.toml. Raising a number is an edit of that file, with the reason under
``[raised]``; the check fails where one was raised without.
"""

import argparse
import ast
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ".ci/ratchet.toml"
MOST_LINES, MOST_BODY, MOST_PARAMETERS = 500, 60, 8
EXEMPTION = re.compile(r"#.*(\bnoqa\b|type: ignore|pragma: no cover)")
# descriptions of an argument that begin in the middle of a sentence
FRAGMENT = r"(of|by|in|as|with|that|those|its|whose|what)\b"
ARGUMENT = re.compile(rf"^ +\w+: {FRAGMENT}", re.MULTILINE)
HABITS = re.compile(r"(?<!there )\bis none\b|(?:^|[.:;!?]\s)\s*Of\s", re.MULTILINE)
# words of narration, and words in a sense that few expect; CONTRIBUTING.md has better ones
UNPLAIN = re.compile(
    r"\banew\b|\bwhoever\b|\b(?:goes|went) on\b|\bc(?:o|a)mes? of\b|\bwithout a word\b"
    r"|\b(?:is|are|was|were) (?:told\b(?! apart)|said\b(?! to))|\b(?:that|which) (?:is|are) none\b"
    r"|\b[Ff]urther (?!than\b|away\b|from\b|apart\b|down\b)[a-z]+|\A\s*What\b(?![^.]*\?)"
    r"|[,;:] what (?:is|are|was|were)\b(?!\?)"
)
# pages that readers of the library read: not the log, nor pages that the papers' code writes
PAGES = (
    *("README.md", "SECURITY.md", "docs/*.md", "docs/guide/*.md"),
    *(f"docs/{folder}/*.md" for folder in ("commands", "diagnoses", "methods", "objectives")),
)
LOG = "LOG.md"
CODE = re.compile(r"^```.*?^```$|`[^`]*`", re.DOTALL | re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def measured(root: Path) -> Counter[str]:
    """Return every number of a checkout."""
    numbers = Counter(
        {
            "src lines": 0,
            "src files": 0,
            "papers lines": 0,
            "private imports of papers": 0,
            "src files above 500 lines": 0,
            "function bodies above 60 lines": 0,
            "functions of nine or more parameters": 0,
            "exemptions": 0,
            "prose fragments": 0,
            "unplain words": 0,
        }
    )
    for page in (page for pattern in PAGES for page in sorted(root.glob(pattern))):
        if page.name != LOG:
            prose = CODE.sub("", page.read_text(encoding="utf-8"))
            numbers["unplain words"] += len(UNPLAIN.findall(prose))
            numbers["prose fragments"] += len(HABITS.findall(prose))
    for file in sorted((root / "papers").rglob("*.py")):
        numbers["papers lines"] += _lines(file)
        tree = ast.parse(file.read_bytes())
        numbers["private imports of papers"] += sum(1 for _ in private_imports(tree, root))
    for file in sorted((root / "src").rglob("*.py")):
        lines = _lines(file)
        numbers["src files"] += 1
        numbers["src lines"] += lines
        numbers["src files above 500 lines"] += lines > MOST_LINES
        with tokenize.open(file) as text:
            tokens = list(tokenize.generate_tokens(text.readline))
        comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
        numbers["exemptions"] += sum(EXEMPTION.search(text) is not None for text in comments)
        tree = ast.parse(file.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, Function):
                numbers["function bodies above 60 lines"] += _body(node) > MOST_BODY
                count = len(_parameters(node.args))
                numbers["functions of nine or more parameters"] += count > MOST_PARAMETERS
        numbers["prose fragments"] += sum(1 for _ in fragments(tree))
        numbers["unplain words"] += sum(len(UNPLAIN.findall(text)) for _, text in _texts(tree))
    return numbers


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def _body(function: Function) -> int:
    """Lines of a function without its signature and its docstring."""
    first, *others = function.body
    documented = ast.get_docstring(function, clean=False) is not None
    if documented and not others:
        return 0
    start = others[0] if documented else first
    return (function.end_lineno or 0) - start.lineno + 1


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def private_imports(tree: ast.AST, root: Path) -> Iterator[str]:
    """Yield the imports of a customer that are not the package's public names, or a room's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "isotrope":
            place = root.joinpath("src", *(node.module or "").split("."), "__init__.py")
            names = place.read_text(encoding="utf-8") if place.is_file() else ""
            public = re.findall(r"^    from \S+ import \w+ as (\w+)$", names, re.MULTILINE)
            yield from (f"{node.module}.{a.name}" for a in node.names if a.name not in public)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("isotrope."))


def fragments(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of descriptions and sentences that nobody can read at once."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for pattern in (ARGUMENT, HABITS):
                for match in pattern.finditer(node.value):
                    yield node.lineno, match[0].strip()
        elif isinstance(node, ast.keyword) and node.arg in ("help", "description"):
            text = node.value.value if isinstance(node.value, ast.Constant) else ""
            if isinstance(text, str) and re.match(FRAGMENT, text):
                yield node.value.lineno, text


def raised_without_reason(root: Path) -> list[str]:
    """Return the numbers that one version of the record raised and gave no new reason for."""
    versions = [(root / RECORD).read_text(encoding="utf-8")]
    git = ["git", "-C", str(root)]
    try:
        log = subprocess.run(
            [*git, "log", "-3", "--format=%H", "--", RECORD],
            capture_output=True,
            text=True,
            check=True,
        )
        for commit in log.stdout.split():
            show = [*git, "show", f"{commit}:{RECORD}"]
            found = subprocess.run(show, capture_output=True, text=True, check=True)
            versions.append(found.stdout)
    except (OSError, subprocess.CalledProcessError):
        pass  # no repository: a tarball
    records = [tomllib.loads(text) for text in versions]
    return [
        name
        for new, old in pairwise(records)
        for name, most in new["most"].items()
        if most > old["most"].get(name, most)
        and new["raised"].get(name, "") in ("", old["raised"].get(name, ""))
    ]


def lowered(text: str, numbers: Counter[str]) -> str:
    """Return the record with every number that has become smaller."""
    for name, most in tomllib.loads(text)["most"].items():
        if numbers[name] < most:
            text = text.replace(f'"{name}" = {most}', f'"{name}" = {numbers[name]}')
    return text


def main(root: Path, words: list[str]) -> int:
    """Print every number beside its record; 1 if one is above it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--lower", action="store_true", help="write down what became smaller")
    lower = parser.parse_args(words).lower
    file, numbers = root / RECORD, measured(root)
    if lower:
        file.write_text(lowered(file.read_text(encoding="utf-8"), numbers), encoding="utf-8")
    most = tomllib.loads(file.read_text(encoding="utf-8"))["most"]
    for name, number in numbers.items():
        limit = most[name]
        note = f"ABOVE THE RECORD of {limit}" if number > limit else f"at most {limit}"
        print(f"{name}: {number:,} ({note})")
    above = [name for name, number in numbers.items() if number > most[name]]
    if above:
        print(
            f"{RECORD} holds the best value so far of {', '.join(above)}: make it smaller again, "
            "or raise the number there and give the reason under [raised]",
            file=sys.stderr,
        )
    if unexplained := raised_without_reason(root):
        print(
            f"{RECORD} raises {', '.join(unexplained)} without a new reason under [raised]",
            file=sys.stderr,
        )
    return int(bool(above or unexplained))


if __name__ == "__main__":
    sys.exit(main(ROOT, sys.argv[1:]))
