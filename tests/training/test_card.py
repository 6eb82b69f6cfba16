"""The model card's base model: a name of the hub's, and never a path of this machine."""

from pathlib import Path

import pytest

from isotrope.training.card import _base_metadata, _base_name, _table

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("encoder", "line", "name"),
    [
        (MINILM, f'\nbase_model: "{MINILM}"', MINILM),
        ("minilm", f'\nbase_model: "{MINILM}"', "minilm"),
        ("0.5", '\nbase_model: "0.5"', "0.5"),
        ("scratch", "", "scratch"),
        ("{here}/before", "", "before"),
    ],
)
def test_the_base_is_a_name_of_the_hub_or_none(
    encoder: str, line: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "before").mkdir()
    encoder = encoder.format(here=tmp_path)
    assert _base_metadata(encoder) == line
    assert _base_name(encoder) == name


def test_a_line_break_of_a_prompt_does_not_end_the_table() -> None:
    assert (
        _table({"prompts": "queries `Ask:\nQuery: `"}) == r"| prompts | queries `Ask:\nQuery: ` |"
    )


def test_a_bar_of_a_prompt_does_not_end_a_cell() -> None:
    assert _table({"a|b": "queries `ask|`"}) == r"| a\|b | queries `ask\|` |"
