"""Collect the docstrings of installed packages as text about code.

    python examples/docstrings.py    # pairs of Python's own library, and the same texts apart

Packages are read as source and never imported. From each docstring come a query (its first
sentence: what the function does) and a target (the rest, as plain prose), so that a model can be
asked to find the function by what it does.
"""

import ast
import importlib.util
import inspect
import logging
import re
import sysconfig
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isotrope.core.errors import InputError

STANDARD_LIBRARY = "stdlib"
DEFAULT: tuple[str, ...] = (STANDARD_LIBRARY, "torch", "numpy", "scipy", "sklearn", "transformers")

MIN_QUERY_WORDS = 4
MAX_QUERY_WORDS = 60
MIN_TARGET_WORDS = 8
TWIN_WINDOW = 40  # words at the start of a target that decide whether it repeats another
TWIN_SHINGLE = 4  # words in one shingle
TWIN_SHARE = 0.4  # share of its shingles found in one other target that makes it a twin

logger = logging.getLogger(__name__)

# Folders that hold no functions a reader would look for: tests, demonstrations, bundled copies.
_SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "examples", "idlelib", "lib2to3", "turtledemo", "ensurepip", "pydoc_data"}
    | {"encodings", "distutils", "externals", "vendored"}
    | {"site-packages", "dist-packages", "__pycache__"}
)
# The only private folder whose functions are a package's public face.
_KEPT_PRIVATE_FOLDERS = frozenset({"numpy/_core"})
# Some 400 architectures in copies of one another: three quarters of the package's source.
_SKIPPED_PATHS = frozenset({"transformers/models"})
# How torch, numpy and scipy attach text to functions written in C.
_ATTACHERS = frozenset({"add_docstr", "add_newdoc"})


@dataclass(frozen=True)
class Documented:
    """A documented function, class or method.

    Attributes:
        name: Qualified name without private modules, such as ``scipy.stats.spearmanr``.
        query: First sentence of the docstring.
        target: Everything after it, as one line of plain prose.
    """

    name: str
    query: str
    target: str


def collect(packages: Sequence[str] = DEFAULT) -> list[Documented]:
    """Return the documented public functions, classes and methods of installed packages.

    Nothing is imported: the sources are parsed. Items with a very short query or target are
    dropped, and so are twins (the same query, or a target that begins as another one does), so
    that a held-out function has no copy among the others.

    Args:
        packages: Top-level package names; ``"stdlib"`` is Python's standard library. Packages
            that are not installed are skipped, and a log message names them.

    Returns:
        Items sorted by name; the same installed versions give the same list.

    Raises:
        InputError: None of the packages is installed.
    """
    folders = {package: _folder(package) for package in dict.fromkeys(packages)}
    absent = [package for package, folder in folders.items() if folder is None]
    if len(absent) == len(folders):
        raise InputError(
            f"no docstrings to read: no installed package among {absent}; "
            f"name one that is, or {STANDARD_LIBRARY!r} for Python's own"
        )
    if absent:
        logger.warning("docstrings: not installed, skipped: %s", ", ".join(absent))
    items = []
    for package, folder in folders.items():
        if folder is not None:
            for name, docstring in _documented(package, folder):
                query, target = split_docstring(docstring)
                if _usable(query, target):
                    items.append(Documented(name, query, target))
    return _without_twins(sorted(items, key=lambda item: (item.name, item.query, item.target)))


def split(
    items: Sequence[Documented], holdout: int, seed: int
) -> tuple[list[Documented], list[Documented]]:
    """Divide items at random into ones to train on and ones held out.

    Args:
        items: What `collect` returned.
        holdout: Number of items to hold out.
        seed: Seed of the choice.

    Returns:
        (train, heldout), disjoint, each in the order of `items`.

    Raises:
        InputError: `holdout` is not between 1 and one less than the number of items.
    """
    if not 0 < holdout < len(items):
        raise InputError(
            f"cannot hold out {holdout} of {len(items)} documented functions; "
            f"choose between 1 and {max(len(items) - 1, 1)}"
        )
    order = np.random.default_rng(seed).permutation(len(items))
    chosen = set(order[:holdout].tolist())
    train = [item for i, item in enumerate(items) if i not in chosen]
    return train, [items[i] for i in sorted(chosen)]


def split_docstring(docstring: str) -> tuple[str, str]:
    """Return (first sentence, rest) of a docstring as plain prose; either may be empty."""
    paragraphs = _prose(docstring)
    while paragraphs and _SIGNATURE.fullmatch(paragraphs[0]):
        del paragraphs[0]
    if not paragraphs:
        return "", ""
    sentence, remainder = _first_sentence(paragraphs[0])
    return sentence, " ".join([remainder, *paragraphs[1:]]).strip()


# --- finding docstrings ---------------------------------------------------------------------


def _folder(package: str) -> Path | None:
    """Where the package's sources are, or None."""
    if package == STANDARD_LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    spec = importlib.util.find_spec(package)  # of a top-level name: locates, executes nothing
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _documented(package: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, docstring) of everything public in a package."""
    root = "" if package == STANDARD_LIBRARY else package
    for path in _sources(root, folder):
        parts = [root, *path.relative_to(folder).with_suffix("").parts]
        module = ".".join(part for part in parts if part and not part.startswith("_"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in other people's strings
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError):  # sources for another Python version, templates
                continue
        yield from _in_body(module, tree.body)


def _sources(root: str, folder: Path) -> Iterator[Path]:
    """Python files below a folder, skipped folders left out."""
    for path in sorted(folder.iterdir()):
        name = path.name
        if path.is_dir():
            place = f"{root}/{name}"
            private = name.startswith("_") and place not in _KEPT_PRIVATE_FOLDERS
            if not (private or name in _SKIPPED_FOLDERS or place in _SKIPPED_PATHS):
                yield from _sources(place, path)
        elif path.suffix == ".py" and not name.startswith(("test_", "conftest")):
            yield path


def _in_body(owner: str, body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Public definitions among statements, methods included, functions in functions not."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name.startswith("_"):
                continue
            name = f"{owner}.{node.name}" if owner else node.name
            docstring = ast.get_docstring(node)
            if docstring:
                yield name, docstring
            if isinstance(node, ast.ClassDef):
                yield from _in_body(name, node.body)
        elif isinstance(node, ast.If | ast.Try):
            yield from _in_body(owner, [*node.body, *node.orelse])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from _attached(owner, node.value)


def _attached(owner: str, call: ast.Call) -> Iterator[tuple[str, str]]:
    """The (name, docstring) of a statement such as ``add_docstr(torch.abs, "...")``."""
    function = call.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if called not in _ATTACHERS or len(call.args) < 2:
        return
    *place, text = call.args
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute):
        text = text.func.value  # r"""...""".format(...)
    if isinstance(text, ast.Tuple) and text.elts:  # numpy: (method, text)
        place, text = [*place, text.elts[0]], text.elts[-1]
    if not (isinstance(text, ast.Constant) and isinstance(text.value, str)):
        return
    words = [str(p.value) if isinstance(p, ast.Constant) else ast.unparse(p) for p in place]
    dotted = ".".join(words) if "." in words[0] else ".".join([owner, *words])
    parts = dotted.split(".")
    if not parts[-1].startswith("_"):
        name = ".".join(part for part in parts if not part.startswith("_"))
        yield name, re.sub(r"\{\w+\}", "", inspect.cleandoc(text.value)).replace("{{", "{")


# --- from docstring to prose ----------------------------------------------------------------

_DROPPED_SECTIONS = frozenset(
    {"example", "examples", "usage", "example usage", "usage example", "usage examples"}
    | {"references", "reference", "citation", "see also", "shape", "shapes"}
    | {"methods", "attributes"}
)
_KEPT_DIRECTIVES = frozenset(
    {"note", "warning", "important", "caution", "tip", "hint", "attention"}
)
_UNDERLINE = re.compile(r"^\s*([-=~^\"*])\1{2,}\s*$")
_RULE = re.compile(r"^[\s\-=+|_~*#]{3,}$")
_HEADING = re.compile(
    r"^(\s*)(Args?|Arguments|Parameters?|Params|Returns?|Yields?|Raises|Examples?|Usage|Notes?|"
    r"References?|See Also|Keyword Args|Keyword Arguments|Attributes|Shapes?|Inputs?|Outputs?|"
    r"Warnings?|Methods|Example Usage|Citation)\s*(?:\([^)]*\))?:{1,2}\s*$",
    re.IGNORECASE,
)
_DIRECTIVE = re.compile(r"^\s*\.\.\s+([\w:\-]+?)\s*::\s*(.*)$")
_NUMPY_FIELD = re.compile(
    r"^([*`]{0,3}\w+[`]{0,2}(?:\s*,\s*[*`]{0,3}[\w.]+[`]{0,2})*)\s*:(?:\s.*)?$"
)
_GOOGLE_FIELD = re.compile(
    r"^\s*(?:[-*]\s+)?([*`]{0,3}\w+[`]{0,2})\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*:"
)
_REST_FIELD = re.compile(r"^\s*:(param|parameter|arg|argument|keyword|raises?)\s+([^:`]+):(?!`)")
_REST_RETURN = re.compile(r"^\s*:returns?:(?!`)")
_REST_TYPE = re.compile(r"^\s*:r?type\b[^:]*:(?!`)")


def _prose(docstring: str) -> list[str]:
    """Paragraphs of plain text: no examples, code, formulas, types or markup."""
    lines = docstring.expandtabs(4).splitlines()
    paragraphs: list[list[str]] = [[]]
    skip_from: int | None = None  # indentation of the line whose indented block is left out
    fenced = doctest = dropped = False
    fields = False  # in a section whose lines at the margin are "name : type"
    for i, line in enumerate(lines):
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith("```"):
            fenced = not fenced
            continue
        if not text:
            doctest = False
            paragraphs.append([])
            continue
        if skip_from is not None and indent > skip_from:
            continue
        skip_from = None
        doctest = doctest or text.startswith(">>>")
        if fenced or doctest:
            continue
        if i + 1 < len(lines) and _UNDERLINE.match(lines[i + 1]) and not _UNDERLINE.match(line):
            section = text.lower().rstrip(":")
            dropped = section in _DROPPED_SECTIONS
            fields = section in {"parameters", "other parameters", "returns", "yields"}
            paragraphs.append([])
            continue
        if dropped or _RULE.match(line) or (text[0] == text[-1] == "|" and len(text) > 1):
            continue
        heading = _HEADING.match(line)
        if heading:
            fields = False
            if heading[2].lower() in _DROPPED_SECTIONS:
                skip_from = indent
            paragraphs.append([])
            continue
        directive = _DIRECTIVE.match(line)
        if directive and directive[1] in _KEPT_DIRECTIVES:
            text = directive[2]
        elif directive or text.startswith(".. "):
            skip_from = indent
            continue
        elif text.endswith("::"):
            skip_from = indent
            text = "" if _HEADING.match(line) else f"{text[:-2].rstrip()}."
        elif _REST_TYPE.match(line):
            continue
        elif fields and indent == 0:
            field = _NUMPY_FIELD.match(line)
            text = f"{field[1]}:" if field else text
        else:
            text = _GOOGLE_FIELD.sub(r"\1:", line).strip()
            text = _REST_FIELD.sub(r"\2:", text)
            text = _REST_RETURN.sub("returns:", text)
        paragraphs[-1].append(text)
    joined = (_plain(" ".join(lines)) for lines in paragraphs)
    return [paragraph for paragraph in joined if paragraph]


_INLINE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r":math:`([^`\\]*)`"), r"\1"),  # a formula in plain letters reads as it stands
    (re.compile(r":math:`[^`]*`"), " "),
    (re.compile(r"\$\$?[^$]{1,200}\$\$?"), " "),
    (re.compile(r":[\w:+\-]+:`([^`<]+?)\s*<[^`>]*>`"), r"\1"),  # :ref:`text <label>`
    (re.compile(r":[\w:+\-]+:`[~!]?([^`]*)`"), r"\1"),  # :func:`name`
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{1,2}"), r"\1"),  # `text <address>`_
    (re.compile(r"\[([^\]]+)\]\((?:[^()\s]|\([^()]*\))*\)"), r"\1"),  # [text](address)
    (re.compile(r"\[\s*[\w+.\- ]+\]_"), ""),  # [1]_
    (re.compile(r"%\(\w+\)s"), ""),  # a place where the package fills in text
    (re.compile(r"\[`([^`\]]*)`\]"), r"\1"),  # [`Name`]
    (re.compile(r"https?://\S+|www\.\S+"), ""),
    (re.compile(r"</?\w+[^<>]*/?>"), ""),
    (re.compile(r"\|(\w+)\|"), r"\1"),
    (re.compile(r"`+_{0,2}"), ""),
    (re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])"), r"\2"),
    (re.compile(r"(?:(?<=\s)|^)[-*#•]+\s+"), ""),
    (re.compile(r"\(\s*\)(?=\s)|\\(?=\W)"), ""),
    (re.compile(r"\s+([,;.])(?=\s|$)"), r"\1"),
    (re.compile(r"\s+"), " "),
)


def _plain(text: str) -> str:
    """A paragraph without reStructuredText, Markdown or HTML markup, on one line."""
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text.strip()


_SIGNATURE = re.compile(r"[\w.]+\([^)]*(?:\([^)]*\)[^)]*)*\)(?:\s*->.*)?")
_SENTENCE_END = re.compile(r"[.!?][)\"']?(?=\s+[A-Z0-9\"'(\[`*_]|\s*$)")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|eq|fig|ref|no|approx|resp|w\.r\.t)|\b\w)\.$", re.IGNORECASE
)


def _first_sentence(paragraph: str) -> tuple[str, str]:
    """Divide a paragraph after its first sentence; without a full stop it is all one sentence."""
    for end in _SENTENCE_END.finditer(paragraph):
        sentence = paragraph[: end.end()]
        if end.end() == len(paragraph) or not _ABBREVIATION.search(sentence):
            return sentence.strip(), paragraph[end.end() :].strip()
    return paragraph, ""


# --- choosing -------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    """Lower-case words of letters only: what two texts are compared by."""
    return re.findall(r"[^\W\d_]+", text.lower())


def _usable(query: str, target: str) -> bool:
    """Whether both texts are long enough, and mostly letters."""
    enough = MIN_QUERY_WORDS <= len(_words(query)) <= MAX_QUERY_WORDS
    enough = enough and len(_words(target)) >= MIN_TARGET_WORDS
    letters = sum(c.isalpha() or c == " " for c in query + target)
    return enough and letters > 0.8 * len(query + target)


def _without_twins(items: Sequence[Documented]) -> list[Documented]:
    """Keep the first of the items that share a query or most of the beginning of a target."""
    distinct: list[Documented] = []
    queries: set[str] = set()
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)  # shingle -> indices in kept
    for item in items:
        query = " ".join(_words(item.query))
        words = _words(item.target)[:TWIN_WINDOW]
        shingles = {
            tuple(words[i : i + TWIN_SHINGLE]) for i in range(len(words) - TWIN_SHINGLE + 1)
        }
        shared = Counter(index for shingle in shingles for index in holders[shingle])
        most = max(shared.values(), default=0)
        if query in queries or most > TWIN_SHARE * len(shingles):
            continue
        for shingle in shingles:
            holders[shingle].append(len(distinct))
        queries.add(query)
        distinct.append(item)
    return distinct


def main() -> None:
    """Write pairs to train on, 100 others, and each side of the former as a file of its own."""
    train, held_out = split(collect([STANDARD_LIBRARY]), holdout=100, seed=0)
    files = {
        "pairs.tsv": [f"{item.query}\t{item.target}" for item in train],
        "held_out.tsv": [f"{item.query}\t{item.target}" for item in held_out],
        "sentences.txt": [item.query for item in train],
        "answers.txt": [item.target for item in train],
    }
    for name, lines in files.items():
        Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(len(train), "pairs to train on,", len(held_out), "held out")


if __name__ == "__main__":
    main()
