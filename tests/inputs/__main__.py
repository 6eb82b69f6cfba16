"""``python -m tests.inputs [PART OF A NAME]``: try every case; print the count and the failures."""

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def main() -> int:
    """Try the cases whose name holds the argument; return 1 if one of them fails."""
    from tests.inputs import Bench, corpus, tried

    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [case for case in corpus() if asked in case.name]
    failures, slowest, start = 0, (0.0, ""), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "bench")
        bench.folder.mkdir()
        for number, case in enumerate(chosen):
            wrong, took = tried(case, bench, Path(folder) / str(number))
            slowest = max(slowest, (took, case.name)) if number else slowest  # the first imports
            if wrong:
                print(f"{case.name}: {'; '.join(wrong)}"[:500], flush=True)
            failures += bool(wrong)
    areas: dict[str, int] = {}
    for case in chosen:
        area = case.name.partition("/")[0]
        areas[area] = areas.get(area, 0) + 1
    told = ", ".join(f"{count} {area}" for area, count in areas.items())
    print(
        f"{len(chosen)} bad inputs ({told}) in {time.monotonic() - start:.0f} s, the slowest "
        f"{slowest[0]:.1f} s ({slowest[1]}): {failures} not refused as they should be"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
