"""Run the code blocks of pages, in order, in the folder where one is.

    python run_page.py [--quick] PAGE.md ...

Python is executed, all of a page in one session; a block with ``title="my_loss.py"`` is written to
that file instead. Of shell blocks ``isotrope`` and ``python`` lines are run, the first in the same
process. Where they load plugins, Python is executed apart, block by block: a session cannot have an
objective of one name twice. Other blocks change the machine or need another one: before such a
block stands ``<!-- not run: REASON -->``, which readers do not see, and it is left out. A block of
``text`` behind code is what it prints: the words are compared, numbers are those of the machine
where it was written, ``...`` stands for any lines. ``--quick`` cuts trainings and texts short, and
does not compare what is printed of them.

Needs nothing but isotrope, so that the newcomer's path (.ci/newcomer.sh) is these pages too.
"""

import argparse
import contextlib
import io
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SKIPPED = re.compile(r"<!-- not run: .+ -->\n\Z")
LINES, LENGTH = 240, 80  # of texts in the folder and of each, with --quick
# what continuous integration runs besides pages needs no comment
SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "run"
ROOT = SCRIPT.parents[1]  # where the examples are
CALLED = [line.strip() for line in SCRIPT.read_text("utf-8").splitlines()]
SHELL = ("console", "sh", "bash", "")

# What --quick makes of a verb's flags: a whole number is the most that stays of a given one, and a
# flag that is absent is added.
QUICK: dict[str, dict[str, int | str | None]] = {
    "train": {"--max-steps": 2, "--batch-size": 16, "--holdout": "0.2"},
    "train-images": {"--max-steps": 2, "--batch-size": 16, "--knn-every": 0},
    "sweep": {"--dry-run": None},
    "papers": {"--dry-run": None},
    "simulate": {"--grid": 5},
}
PAPERS = ["python", "-m", "papers"]
# left out: its tasks have 100,000 texts, and their number is checked
DROPPED = ("--transfer",)
# flags that are lowered where they are given, and not added
LOWERED = {"--micro-batch": 8, "--epochs": 1, "--seeds": 1, "--batches": 20, "--width": 16}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str
    line: int
    skipped: bool = False


def blocks(markdown: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = re.finditer(r"^```(\w*)[ \t]*(.*?)\n(.*?)^```$", markdown, re.DOTALL | re.MULTILINE)
    return [
        Block(
            match[1],
            title[1] if (title := re.search(r'title="(.*?)"', match[2])) else "",
            match[3],
            markdown.count("\n", 0, match.start()) + 2,
            SKIPPED.search(markdown, max(0, match.start() - 200), match.start()) is not None,
        )
        for match in found
    ]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell block."""
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def quickened(words: Sequence[str]) -> list[str]:
    """Return an ``isotrope`` command, or one of the papers, that takes seconds."""
    verb = "papers" if words[:3] == PAPERS else words[1]
    found = list(words)
    for flag in DROPPED:
        if flag in found:
            del found[found.index(flag) : found.index(flag) + 2]
    wanted = QUICK.get(verb, {})
    for flag, most in {**LOWERED, **wanted}.items():
        at = found.index(flag) + 1 if flag in found else 0
        if at and isinstance(most, int):
            found[at] = str(min(int(found[at]), most))
        elif not at and flag in wanted:
            found += [flag] if most is None else [flag, str(most)]
    return found


def shorten() -> None:
    """Cut the texts of this folder to the first lines, and these to their first letters."""
    for file in (*Path().glob("*.txt"), *Path().glob("*.tsv")):
        lines = file.read_text(encoding="utf-8").splitlines()[:LINES]
        cut = ["\t".join(text[:LENGTH] for text in line.split("\t")) for line in lines]
        file.write_text("".join(f"{line}\n" for line in cut), encoding="utf-8")


def same_words(printed: str, shown: str) -> bool:
    """Return whether a text was printed as it is shown: numbers are all alike, ``...`` is any."""

    def pattern(text: str) -> str:
        # a number, with its sign and with the star of the best one; several blanks are one, as
        # columns move with the numbers
        plain = re.sub(r"[-+\u2212]?(\d[\d,]*)?\.?\d+(e[-+]?\d+)?\*?", "0", text)
        return "\n".join(" ".join(line.split()) for line in plain.strip().splitlines())

    pieces = map(re.escape, re.split(r"\s*^\.\.\.$\s*", pattern(shown), flags=re.MULTILINE))
    return re.fullmatch(r"\s*.*?\s*".join(pieces), pattern(printed), re.DOTALL) is not None


class Page:
    """One page, run block by block."""

    def __init__(self, file: Path, *, quick: bool) -> None:
        self.file, self.quick = file, quick
        self.blocks = blocks(file.read_text(encoding="utf-8"))
        self.apart = any("--plugin" in b.text for b in self.blocks if b.language in SHELL)
        self.session: dict[str, Any] = {"__name__": "__main__"}
        self.printed: str | None = None  # by the last block; None where it is not comparable

    def run(self) -> None:
        """Run everything."""
        for block in self.blocks:
            began = time.process_time()
            if self.quick:
                shorten()
            try:
                self._block(block)
            except BaseException:
                print(f"\n{self.file.name}, line {block.line}:\n{block.text}", file=sys.stderr)
                raise
            took = time.process_time() - began
            print(f"[{self.file.name}:{block.line} {took:.1f} s]", file=sys.stderr)

    def _block(self, block: Block) -> None:
        if block.skipped:
            self.printed = None
        elif block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and self.apart:
            self.printed = _listened(lambda: _python(["-c", block.text]))
        elif block.language == "python":
            code = compile(block.text, f"{self.file.name}:{block.line}", "exec")
            self.printed = _listened(lambda: exec(code, self.session))
        elif block.language in SHELL:
            self._shell(block)
        elif block.language == "text" and self.printed is not None:
            assert same_words(self.printed, block.text), f"it prints\n{self.printed}"

    def _shell(self, block: Block) -> None:
        heard: list[str] = []
        comparable = True
        for words in commands(block.text):
            if " ".join(words) in CALLED:
                continue
            quick = words
            if self.quick and (words[0] == "isotrope" or words[:3] == PAPERS):
                quick = quickened(words)
                comparable = comparable and quick == words
            if words[0] == "isotrope":
                heard.append(_listened(lambda quick=quick: _isotrope(_globbed(quick[1:]))))
            elif words[0] == "python":
                heard.append(_listened(lambda quick=quick: _python(quick[1:])))
            else:
                raise AssertionError(
                    f"{' '.join(words)!r} is neither run nor marked: <!-- not run: REASON -->"
                )
        self.printed = "".join(heard) if comparable and heard else None


def _globbed(words: Sequence[str]) -> list[str]:
    """What a shell makes of patterns: the files, or the pattern where there is none."""
    found: list[str] = []
    for word in words:
        found += (sorted(map(str, Path().glob(word))) or [word]) if "*" in word else [word]
    return found


def _isotrope(arguments: list[str]) -> None:
    from isotrope.cli.main import guarded

    code = guarded(arguments)
    assert code == 0, f"isotrope {' '.join(arguments)}: exit code {code}"


def _python(arguments: list[str]) -> None:
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in arguments]
    done = subprocess.run([sys.executable, *words], check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    assert done.returncode == 0, f"python {' '.join(arguments)}: exit code {done.returncode}"


def _listened(call: Callable[[], object]) -> str:
    """Call, and return what was printed; it is printed all the same."""
    heard = io.StringIO()
    try:
        with contextlib.redirect_stdout(heard):
            call()
    finally:
        print(heard.getvalue(), end="")
    return heard.getvalue()


def main() -> None:
    """Run the pages."""
    parser = argparse.ArgumentParser(description="Run the code blocks of pages, here.")
    parser.add_argument("--quick", action="store_true", help="cut trainings short")
    parser.add_argument("pages", nargs="+", type=Path)
    given = parser.parse_args()
    sys.path[0] = ""  # as in a session of the reader's: this folder, and not that of this file
    for page in given.pages:
        Page(page.resolve(), quick=given.quick).run()


if __name__ == "__main__":
    main()
