"""The documentation as a site, in site/: `make site`. Nothing is fetched when it is built or read.

Pages link to each other and to any file of the repository by relative paths, so that links work on
GitHub. Zensical wants one folder of pages, so they are laid out first, in build/site: a linked file
outside docs/ goes to repository/, a notebook becomes a page, a formula becomes MathML, a folder in
the navigation of mkdocs.yml stands for all of its pages. Then Zensical builds and checks links.
Last, tables are prepared for phones, and code is marked that is not to be broken at a hyphen.

    python docs/site.py [FOLDER]     # site/ unless another folder is named
"""

import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
DOCS, OUTSIDE = PurePosixPath("docs"), PurePosixPath("repository")
PROGRAMS = ("*.py", "generate", "__pycache__")
_LINK = re.compile(r"(?<=\]\()([^()\s#]+)(?=[)#])")
# letters that fit beside each other in a table: beside the list of headings, and on a phone
_BESIDE_HEADINGS, _ON_A_PHONE = 85, 50
_LONG = 20  # letters of a cell that is read rather than compared
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
# what is not broken at its hyphens: numbers, flags, and code in prose if it is short
_POWER, _FLAG = re.compile(r"\b[\d.]+e-\d+(?![^<]*>)"), re.compile(r"(?<![\w&;-])--?[a-z][\w.-]*")
_INLINE = re.compile(r"<table>.*?</table>|<code>([^<]*)</code>|<span class=\"go\">.*?</span>", re.S)
_ROLE = re.compile(r":(?:attr|class|func|meth):(<code[^>]*>)~?")  # of Sphinx
_WHOLE, _SHORT = r'<span class="whole">\g<0></span>', 28
_ROWS = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_FORMULA = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(
    r"(`[^`]*`|\]\([^)]*\)|<!--.*?-->|<math.*?</math>|^:::[^\n]*|^ {4}[^\n]*)", re.DOTALL | re.M
)


def main(folder: Path) -> None:
    """Lay the pages out and build the site.

    Args:
        folder: where it goes; what was there goes.
    """
    laid_out = ROOT / "build" / "site"
    shutil.rmtree(laid_out, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    wrong = lay_out(laid_out / "docs")
    if wrong:
        sys.exit("\n".join(wrong))
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    config["nav"] = _expanded(config["nav"])
    config["site_dir"] = "site"
    (laid_out / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    zensical = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    done = subprocess.run(zensical, cwd=laid_out, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    for page in (laid_out / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        text = _TABLE.sub(lambda table: _for_phones(table[0]), _INLINE.sub(_unbroken, text))
        page.write_text(_ROLE.sub(r"\1", text), encoding="utf-8")
    shutil.copytree(laid_out / "site", folder)


def lay_out(folder: Path) -> list[str]:
    """Copy all pages and what they link to, with links as they are there.

    Args:
        folder: for the pages; it is not there yet.

    Returns:
        A line for each link that leads nowhere.
    """
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns(*PROGRAMS, "*.ipynb"))
    for notebook in (ROOT / "docs").rglob("*.ipynb"):
        page = folder / notebook.relative_to(ROOT / "docs").with_suffix(".md")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_notebook(notebook), encoding="utf-8")
    wrong: list[str] = []
    waiting = [PurePosixPath(page.relative_to(folder).as_posix()) for page in folder.rglob("*.md")]
    known = set(waiting)
    while waiting:
        uri = waiting.pop()
        at = uri.relative_to(OUTSIDE) if uri.is_relative_to(OUTSIDE) else DOCS / uri
        text = (folder / uri).read_text(encoding="utf-8")
        for target in _targets(text, at):
            linked = PurePosixPath(_uri(target))
            if not target.is_relative_to(DOCS) and linked not in known:
                known.add(linked)
                (folder / linked).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / target, folder / linked)
                waiting += [linked] if linked.suffix == ".md" else []
        (folder / uri).write_text(_turned(text, uri, at, wrong), encoding="utf-8")
    return wrong


def _turned(text: str, uri: PurePosixPath, at: PurePosixPath, wrong: list[str]) -> str:
    """A page with the links of the site; those that lead nowhere are added to ``wrong``."""

    def turned(link: re.Match[str]) -> str:
        target = _target(link[1], at)
        if target is None:
            if "://" not in link[1] and not link[1].startswith("mailto:"):
                wrong.append(f"{at} links to {link[1]}, which is not there")
            return link[1]
        return posixpath.relpath(_uri(target), posixpath.dirname(str(uri)))

    # a page with a wide table or without headings shows no list of headings: it has more room
    roomy = "\n## " not in text or any(map(_is_wide, _ROWS.findall(text)))
    head = "---\nhide: [toc]\n---\n\n" if roomy else ""
    return head + _prose(text, lambda prose: _as_on_github(_LINK.sub(turned, prose)))


def _is_wide(table: str) -> bool:
    """Whether the rows of a table are wider than the room beside the list of headings."""
    shown = re.sub(r"\]\([^)]*\)|[`*\[\]]", "", table).replace("\\|", "/")
    rows = [row.strip("|\n").split("|") for row in shown.splitlines(keepends=True)]
    words = [[max(map(len, re.split(r"[\s-]", cell))) for cell in row] for row in rows]
    return len(rows[0]) > 6 or sum(map(max, zip(*words, strict=False))) > _BESIDE_HEADINGS


def _unbroken(code: re.Match[str]) -> str:
    """A table, code in prose or a line of a command, with what is not broken in it marked."""
    if code[1] is not None and len(unescape(code[1])) <= _SHORT:
        return f'<code class="whole">{code[1]}</code>'
    pieces = re.split(r"(?<=>)([^<]+)", code[0])
    pieces[1::2] = [_FLAG.sub(_WHOLE, piece) for piece in pieces[1::2]]
    return "".join(pieces)


def _for_phones(table: str) -> str:
    """A table whose rows a phone shows below each other, each cell after its column's name.

    A table that fits stays as it is, and so does one of numbers, which scrolls by itself.
    """
    heads, *rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("<tr")[1:]
    ]
    texts = [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in [heads, *rows]]
    columns = [[unescape(cell) for cell in column] for column in zip(*texts, strict=False)]
    wide = [max(map(len, column)) for column in columns]
    words = sum(max(map(len, re.split(r"[\s-]", " ".join(column)))) for column in columns)
    flags = len(heads) == 2 and not texts[0][0] and wide[0] > _LONG
    table = _POWER.sub(_WHOLE, table)
    if sum(wide) <= _ON_A_PHONE or max(wide[1:], default=0) <= _LONG:
        return table
    if len(heads) < 3 and not flags and words <= _ON_A_PHONE:
        return table
    names = [f'data-column="{name}: "' if name and not flags else "" for name in texts[0]]
    cells = iter(names * len(rows))
    return re.sub(r"<td", lambda _: f"<td {next(cells)}".rstrip(), table).replace(
        "<table>", "<table data-rows>"
    )


def _as_on_github(text: str) -> str:
    """Prose that Python-Markdown shows as GitHub does: formulas, bars in code, underscores."""
    text = _FORMULA.sub(lambda formula: convert(formula[1], display="block"), text)
    unescaped = _ROW.sub(
        lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]), text
    )
    pieces = _CODE.split(unescaped)
    # a bracket behind another one is no reference
    pieces[::2] = [
        re.sub(r"(?<!\\)_|(?<=\] )(?=\[)", lambda one: f"\\{one[0]}", piece)
        for piece in pieces[::2]
    ]
    return "".join(pieces)


def _expanded(nav: list[Any]) -> list[Any]:
    """The navigation with the pages of a folder in its place."""
    found: list[Any] = []
    for item in nav:
        if not isinstance(item, dict):
            found.append(item)
            continue
        ((title, value),) = item.items()
        if isinstance(value, str) and value.endswith("/"):
            value = _pages(ROOT / DOCS / value)
        elif isinstance(value, list):
            value = _expanded(value)
        found += [{title: value}] if value else []
    return found


def _pages(folder: Path) -> list[Any]:
    """The pages of a folder, its README first, then those of its folders."""
    inside = sorted(folder.iterdir(), key=lambda path: (path.stem != "README", path.name))
    pages: list[Any] = [
        path.with_suffix(".md").relative_to(ROOT / DOCS).as_posix()
        for path in inside
        if path.suffix in (".md", ".ipynb")
    ]
    below = [{path.name: _pages(path)} for path in inside if path.is_dir()]
    return pages + [section for section in below if any(section.values())]


def _uri(target: PurePosixPath) -> str:
    """Where in the site a file of the repository lies."""
    if not target.is_relative_to(DOCS):
        return str(OUTSIDE / target)
    inside = target.relative_to(DOCS)
    return str(inside.with_suffix(".md") if inside.suffix == ".ipynb" else inside)


def _target(link: str, at: PurePosixPath) -> PurePosixPath | None:
    """The file of the repository that a link on the page ``at`` means; None if there is none."""
    path = PurePosixPath(posixpath.normpath(posixpath.join(at.parent, link)))
    if "://" in link or path.parts[:1] == ("..",):
        return None
    if (ROOT / path).is_dir():
        pages = sorted((ROOT / path).glob("*.md"), key=lambda page: page.stem != "README")
        path = path / pages[0].name if pages else path
    return path if (ROOT / path).is_file() else None


def _targets(markdown: str, at: PurePosixPath) -> Iterator[PurePosixPath]:
    links: list[str] = []
    _prose(markdown, lambda text: (links.extend(_LINK.findall(text)), text)[1])
    yield from (found for link in links if (found := _target(link, at)) is not None)


def _prose(markdown: str, change: Callable[[str], str]) -> str:
    """The page with everything changed but its fenced blocks."""
    pieces = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    pieces[::2] = map(change, pieces[::2])
    return "".join(pieces)


def _notebook(file: Path) -> str:
    """A notebook as a page: its text and its code."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(
        f"```python\n{text}\n```" if kind == "code" else text for kind, text in texts
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "site")
