"""What runs the pages: it finds the blocks, runs them, and fails where a page is wrong."""

from pathlib import Path

import pytest

from tests.docs.run_page import Page, blocks, commands, quickened, same_words, shorten

PAGE = """
# A page

```python title="given.py"
WORD = "written"
```

```python
from pathlib import Path
print(Path("given.py").read_text().count("written"), "time")
number = 3
```

```text
1 time
```

<!-- not run: it changes the machine -->
```console
pip install something
```

```console
isotrope objectives infonce   # prints a card
```

```python
print("a list:", number)
print("more")
```

```text
a list: 17
...
```
"""


def test_a_page_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    Page(page, quick=True).run()
    out = capsys.readouterr().out
    assert out.startswith("1 time\n")
    assert "--objective.temperature" in out
    assert out.endswith("a list: 3\nmore\n")


@pytest.mark.parametrize(
    ("found", "instead", "message"),
    [
        ("1 time", "1 hour", "it prints"),
        ("...\n", "less\n", "it prints"),
        ("<!-- not run: it changes the machine -->\n", "", "neither run nor marked"),
        ("infonce ", "infonc ", "exit code"),
        ("number)", "nobody)", "nobody"),
    ],
)
def test_what_is_wrong_with_a_page_is_noticed(
    found: str,
    instead: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    assert PAGE.count(found) == 1
    page.write_text(PAGE.replace(found, instead))
    with pytest.raises((AssertionError, NameError), match=message):
        Page(page, quick=True).run()
    assert "page.md, line " in capsys.readouterr().err


def test_blocks_have_their_line_and_comments_are_no_commands() -> None:
    assert [block.line for block in blocks(PAGE)] == [5, 9, 15, 20, 24, 28, 33]
    (long,) = commands('isotrope search runs/a \\\n    text.txt "two words"  # of # your\'s\n')
    assert long == ["isotrope", "search", "runs/a", "text.txt", "two words"]
    assert [block.skipped for block in blocks(PAGE)].index(True) == 3


def test_quick_shortens_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.txt").write_text("é\n" * 300, encoding="utf-8")
    (tmp_path / "wide.tsv").write_text("a" * 99 + "\tb\n")
    shorten()
    assert (tmp_path / "long.txt").read_text(encoding="utf-8") == "é\n" * 240
    assert (tmp_path / "wide.tsv").read_text() == "a" * 80 + "\tb\n"


def test_quick_lowers_and_adds() -> None:
    train = ["isotrope", "train", "a.txt", "--max-steps", "9", "--micro-batch", "64"]
    quick = ["--max-steps", "2", "--micro-batch", "8", "--batch-size", "16", "--holdout", "0.2"]
    assert quickened(train)[3:] == quick
    evaluate = ["isotrope", "evaluate", "a", "--transfer", "DIR", "--sts", "DIR"]
    assert quickened(evaluate)[2:] == ["a", "--sts", "DIR"]
    assert quickened(["isotrope", "report", "runs/a"]) == ["isotrope", "report", "runs/a"]
    assert quickened(["python", "-m", "papers", "--dry-run"])[-1:] == ["--dry-run"]


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("MRR  62.1 -> 63.0\n", "MRR 5.25 -> .5\n", True),
        ("of 1,714 (2.0e-15): 0.71* | -1\n", "of 400 (3e-9): .5 | 2", True),
        ("a -0.5\nb\nc\n", "a 1\n...\nc", True),
        ("a\nb\n", "a\n...", True),
        ("a\nb\nc\n", "a\nc\n", False),
        ("one (of 2)\n", "two (of 2)\n", False),
    ],
)
def test_words_are_compared_and_numbers_are_not(printed: str, shown: str, same: bool) -> None:
    assert same_words(printed, shown) is same
