"""The README's Python example runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.methods.conftest import sentences

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_python_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(example.strip().splitlines()) <= 12
    (tmp_path / "sentences.txt").write_text("\n".join(sentences(400)) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "first" / "model" / "modules.json").is_file()
    assert "tensor" in done.stdout
