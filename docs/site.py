"""What mkdocs does not do by itself: hooks of `make site`, named in mkdocs.yml.

Pages link to each other and to any file of the repository by relative paths, so that links work on
GitHub. In the site a linked file outside docs/ lies under repository/; a notebook becomes a page;
and a folder in the navigation stands for all of its pages.
"""

import json
import logging
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS, OUTSIDE = PurePosixPath("docs"), PurePosixPath("repository")
_LOGGER = logging.getLogger("mkdocs.plugins.site")  # whose warnings --strict counts
_LINK = re.compile(r"(?<=\]\()([^()\s#]+)(?=[)#])")
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE = re.compile(r"(`[^`]*`|\]\([^)]*\)|<!--.*?-->|^ {4}[^\n]*)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder in the place of the folder."""
    config.nav = _expanded(config.nav or [])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages or navigation name, and a page for each notebook."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            page = str(PurePosixPath(file.src_uri).with_suffix(".md"))
            files.append(File.generated(config, page, content=_notebook(Path(file.abs_src_path))))
    named = [PurePosixPath(uri) for uri in _named(config.nav or [])]
    wanted = [_place(str(uri)) for uri in named if uri.is_relative_to(OUTSIDE)]
    for page in filter(File.is_documentation_page, list(files)):
        wanted += _targets(page.content_string, _place(page.src_uri))
    while wanted:
        target = wanted.pop()
        uri = _uri(target)
        if not target.is_relative_to(DOCS) and files.get_file_from_path(uri) is None:
            added = File.generated(config, uri, abs_src_path=str(ROOT / target))
            files.append(added)
            if added.is_documentation_page():
                wanted += _targets(added.content_string, target)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links into those of the site."""
    at = _place(page.file.src_uri)

    def turned(link: re.Match[str]) -> str:
        target = _target(link[1], at)
        if target is None:
            if link[1].startswith("..") and not _joined(link[1], at).is_relative_to(DOCS):
                _LOGGER.warning("%s links to %s, which is not there", at, link[1])
            return link[1]  # inside docs/ mkdocs looks for itself
        return posixpath.relpath(_uri(target), posixpath.dirname(page.file.src_uri))

    return _prose(markdown, lambda text: _as_on_github(_LINK.sub(turned, text)))


def _as_on_github(text: str) -> str:
    """Prose that Python-Markdown shows as GitHub does: bars in code, underscores as they are."""
    unescaped = _ROW.sub(
        lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]), text
    )
    pieces = _CODE.split(unescaped)
    pieces[::2] = [re.sub(r"(?<!\\)_", r"\\_", piece) for piece in pieces[::2]]
    return "".join(pieces)


def _named(nav: Any) -> Iterator[str]:  # noqa: ANN401 - lists and dictionaries of strings
    """The pages of the navigation."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _named(part)


def _expanded(nav: list[Any]) -> list[Any]:
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
    if not folder.is_dir():
        return []
    inside = sorted(folder.iterdir(), key=lambda path: (path.stem != "README", path.name))
    pages: list[Any] = [
        path.with_suffix(".md").relative_to(ROOT / DOCS).as_posix()
        for path in inside
        if path.suffix in (".md", ".ipynb")
    ]
    below = [{path.name: _pages(path)} for path in inside if path.is_dir()]
    return pages + [section for section in below if any(section.values())]


def _place(uri: str) -> PurePosixPath:
    """Where in the repository a page of the site comes from."""
    path = PurePosixPath(uri)
    return path.relative_to(OUTSIDE) if path.is_relative_to(OUTSIDE) else DOCS / path


def _uri(target: PurePosixPath) -> str:
    """Where in the site a file of the repository lies."""
    if not target.is_relative_to(DOCS):
        return str(OUTSIDE / target)
    inside = target.relative_to(DOCS)
    return str(inside.with_suffix(".md") if inside.suffix == ".ipynb" else inside)


def _target(link: str, at: PurePosixPath) -> PurePosixPath | None:
    """The file of the repository that a link on the page ``at`` means; None if there is none."""
    path = _joined(link, at)
    if "://" in link or path.parts[:1] == ("..",):
        return None
    if (ROOT / path).is_dir():
        pages = sorted((ROOT / path).glob("*.md"), key=lambda page: page.stem != "README")
        path = path / pages[0].name if pages else path
    return path if (ROOT / path).is_file() else None


def _joined(link: str, at: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(posixpath.normpath(posixpath.join(at.parent, link)))


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
