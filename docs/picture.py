"""Draw docs/report.png, the picture at the top of the README: `make picture`.

Three trainings on the documentation of Python's library, one as it should be and two with a fault,
then the top of their report in a headless Chromium. Trainings that are in FOLDER already are kept.

    python docs/picture.py FOLDER
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from isotrope.core.run_folder import RunFolder

DOCS = Path(__file__).resolve().parent
RUNS = {
    "infonce": (),
    "temperature-3": ("--objective.temperature", "3"),
    "learning-rate-3e-3": ("--learning-rate", "3e-3"),
}
TRAIN = (
    *("train", "pairs.tsv", "--recipe", "papers", "--dev", "auto", "--max-steps", "20"),
    *("--eval-every", "10", "--log-every", "1"),
)
SIZE = (1280, 1000)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main(folder: Path) -> None:
    """Train what is missing, write the report, and take its picture.

    Args:
        folder: for the pairs, the runs and the report; made if it is not there.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"no browser found; install one of {', '.join(BROWSERS)}")
    folder.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).resolve().parents[1] / "examples" / "docstrings.py"
    subprocess.run([sys.executable, script], cwd=folder, check=True)
    for name, flags in RUNS.items():
        if not RunFolder(folder / "runs" / name).result.is_file():
            _isotrope(folder, *TRAIN, *flags, "--output", f"runs/{name}")
    _isotrope(folder, "report", *(f"runs/{name}" for name in RUNS), "--diagnose")
    width, height = SIZE
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={width},{height}", f"--screenshot={DOCS / 'report.png'}"]
    command += [(folder / "report.html").resolve().as_uri()]
    subprocess.run(command, check=True, env={**os.environ, "HOME": str(folder.resolve())})


def _isotrope(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "isotrope", *words], cwd=folder, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/picture.py FOLDER")
    main(Path(sys.argv[1]))
