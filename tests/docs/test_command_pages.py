"""The pages of the verbs: written from their parsers, complete, and committed as they are."""

import argparse
from pathlib import Path

import pytest

from docs.generate.command_pages import command_page, write_command_pages
from isotrope.cli.command import load
from isotrope.cli.main import VERBS

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "commands"


@pytest.mark.parametrize("verb", VERBS)
def test_the_committed_page_is_what_the_parser_says(verb: str) -> None:
    text = (COMMITTED / f"{verb}.md").read_text(encoding="utf-8")
    assert text == command_page(verb), "out of date: make docs"
    for action in load(verb).parser()._actions:
        assert action.help, f"{action.dest} says nothing of itself"
        names = action.option_strings or [str(action.metavar or action.dest).replace("|", "\\|")]
        shown = "--help" not in names and action.help != argparse.SUPPRESS
        assert not shown or all(f"`{name}" in text for name in names)


def test_the_committed_index_and_nothing_else(tmp_path: Path) -> None:
    written = write_command_pages(tmp_path)
    assert (COMMITTED / "README.md").read_text(encoding="utf-8") == written[0].read_text()
    assert {f.name for f in COMMITTED.iterdir()} == {f.name for f in written}


def test_a_page_has_what_the_help_has() -> None:
    train = command_page("train")
    assert train.startswith("# isotrope train\n\n```text\nisotrope train FILE ... --output DIR")
    assert "\n\nFine-tune a sentence encoder" in train
    chosen = "[chosen by --recipe auto; papers: 64]"
    assert (
        f"| `--batch-size N` | Number of texts or pairs per step, on all devices {chosen}. |"
        in train
    )
    assert "```console\nisotrope train wiki.txt.gz --dev" in train
    assert "with any number of hard negatives" in train
    assert "| `--pooling NAME` | Pooling: mean, cls, max, ..." in train
    evaluate = command_page("evaluate")
    assert "```text\nisotrope evaluate MODEL ...\nisotrope evaluate --compare" in evaluate
    assert "## Data to score on, in any combination" in evaluate
    assert "| `--mode full\\|prototyping` | Protocol of the transfer tasks [full]. |" in evaluate
    simulate = command_page("simulate")
    assert "```text\ndissipation  gradient dissipation GD: factor on the whole gradient" in simulate
    assert "%" not in command_page("sweep"), "filled in as in the help"
