"""The comparison: each "yes" of ours leads to a file that is there; what is missing is said."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "compare.md"


def test_every_yes_leads_somewhere() -> None:
    page = PAGE.read_text(encoding="utf-8")
    features = page.split("\n## Objectives\n")[1].split("\n## Speed\n")[0]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in features.splitlines()
        if line.startswith("| ")
    ]
    header = ["", "isotrope"]
    ours = {feature: cell for feature, cell, *_ in rows if [feature, cell] != header}
    assert len(ours) > 40
    for feature, cell in ours.items():
        link = re.fullmatch(r"\[(yes|in its trainer)\]\((.+)\)", cell)
        assert link or cell in ("no", "through mteb", "through sentence-transformers"), (
            f"{feature}: {cell}"
        )
        if link:
            assert (PAGE.parent / link[2]).is_file(), f"{feature}: {link[2]}"
    assert sum(cell == "no" for cell in ours.values()) >= 3, "what it lacks is listed, too"
    assert {len(row) for row in rows} == {7}
