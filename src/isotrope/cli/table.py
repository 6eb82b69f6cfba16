"""Plain text tables for the terminal."""

from collections.abc import Sequence

__all__ = ["table"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns: numbers to the right, text to the left; a heading may have lines."""
    headings = [heading.split("\n") for heading in header]
    lines = max(map(len, headings))
    top = [[heading[i] if i < len(heading) else "" for heading in headings] for i in range(lines)]
    cells = [*top, *(list(row) for row in rows)]
    numeric = [all(row[i][:1] in "+-0123456789" for row in rows) for i in range(len(header))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if i == 0 or not numeric[i] else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([*map(line, top), rule, *map(line, cells[lines:])])
