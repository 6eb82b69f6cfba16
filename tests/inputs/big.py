"""Reading millions of lines: how much memory it takes, measured in a process of its own.

``python -m tests.inputs.big 10000000`` writes a file of so many lines, makes the token store of a
training of it, and prints what that took.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = "river stone cloud engine garden mirror ocean paper rocket silver tiger violet".split()  # noqa: SIM905

CHILD = """
import json, sys, time
from pathlib import Path
from isotrope.data.sources import read
from isotrope.data.text.store_writer import StoreSettings, build

def anonymous():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1024

file, folder, lines = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
seen, done, start = [], [0], time.monotonic()

def tokenize(texts, max_length):  # given a thousand texts at a time: the cost of words is not ours
    return [[1, len(text) % 90 + 3, 2] for text in texts], 0

def progress(count):
    done[0] += count
    seen.append((done[0], anonymous()))

settings = StoreSettings(vocabulary=100, max_length=16, views="dropout", holdout=0.1)
store = build(folder, read([file]), tokenize, settings, progress=progress)
seen.append((lines, anonymous()))
early = max(mb for count, mb in seen if count <= lines / 10)
print(json.dumps({
    "lines": lines, "kept": len(store), "seconds": time.monotonic() - start,
    "early_mb": early, "growth_mb": max(mb for _, mb in seen) - early,
}))
"""


def write_lines(file: Path, lines: int) -> Path:
    """Write so many lines, all different."""
    with file.open("w") as handle:
        for first in range(0, lines, 10_000):
            block = range(first, min(first + 10_000, lines))
            handle.writelines(
                f"{WORDS[i % 12]} {WORDS[i // 12 % 12]} number {i} of the {WORDS[i // 7 % 12]}\n"
                for i in block
            )
    return file


def read_many(lines: int, folder: Path) -> dict[str, float]:
    """Make the token store of a file of ``lines`` lines in ``folder``.

    Returns:
        ``lines``, ``kept``, ``seconds``, ``early_mb``: memory (without mapped files) that the first
        tenth took at most, and ``growth_mb``: how much more the rest took at most.
    """
    file = write_lines(folder / "lines.txt", lines)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(file), str(folder / "tokens"), str(lines)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print what so many lines take."""
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        found = read_many(lines, Path(folder))
    print(
        f"{lines:,} lines read into a token store in {found['seconds']:.0f} s; memory grew by "
        f"{found['growth_mb']:.0f} MB over the last nine tenths ({found['early_mb']:.0f} MB before)"
    )


if __name__ == "__main__":
    main()
