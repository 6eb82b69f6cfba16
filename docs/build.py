"""Write what is generated: docs/objectives/, methods/, commands/, diagnosis.md, README's table.

Run by `make docs`; tests/report/test_pages.py, test_method_pages.py, tests/cli/test_pages.py,
tests/docs/test_choose.py and tests/diagnostics/test_thresholds.py fail where what is committed is
out of date.
"""

from pathlib import Path

from isotrope.cli.pages import write_command_pages
from isotrope.diagnostics.thresholds import page
from isotrope.methods.image_methods import METHODS, find_method
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.portrait import rows
from isotrope.report.method_pages import write_method_pages
from isotrope.report.pages import write_pages

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- objectives: written by `make docs` -->\n", "<!-- end of objectives -->\n"


def ours() -> list[str]:
    """Return the names of the objectives in the package; a plugin's have no page here."""
    known = Objective.registered
    return [name for name in registry.names() if known[name].__module__.startswith("isotrope.")]


def readme(text: str) -> str:
    """Return the README with its table of objectives as the registry has it."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    header = ["objective", "GD", "W", "R", "paper"]
    cells = [header, ["---"] * len(header)]
    for name, (dissipation, weight, ratio, paper, *_) in rows(ours()).items():
        link = f"[`{name}`](docs/objectives/{name}.md)"
        cells.append([link, dissipation, weight, ratio, paper])
    table = "".join(f"| {' | '.join(row)} |\n" for row in cells)
    return f"{before}{BEGIN}{table}{END}{after}"


def main() -> None:
    """Write all pages and the table."""
    write_pages(ours(), ROOT / "docs" / "objectives")
    write_method_pages(map(find_method, METHODS), ROOT / "docs" / "methods")
    write_command_pages(ROOT / "docs" / "commands")
    thresholds = page(ROOT / "docs" / "results" / "zoo.csv")
    (ROOT / "docs" / "diagnosis.md").write_text(thresholds, encoding="utf-8")
    file = ROOT / "README.md"
    file.write_text(readme(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
