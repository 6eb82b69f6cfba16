"""The notebooks run from top to bottom, and are committed without what they print."""

import os
import re
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="of the extra docs: make test-docs")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_no_output_is_committed(file: Path) -> None:
    book = nbformat.read(file, as_version=4)
    nbformat.validate(book)
    for cell in book.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_nothing_below_the_root_is_imported(file: Path) -> None:
    code = [c.source for c in nbformat.read(file, as_version=4).cells if c.cell_type == "code"]
    assert not re.search(r"(from|import) isotrope\.", "\n".join(code))


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for folder in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(folder, str(tmp_path / folder))
    book = nbformat.read(file, as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=dict(os.environ))
    printed = "".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    for words in EXPECTED[file.stem]:
        assert words in printed


EXPECTED = {
    "components": ["Barlow Twins               GD 1.00 ( 0% of the anchors rest)", "margin +0.28"],
    "adapt": ["held-out MRR@10", "verdict: ", "report.html"],
}
