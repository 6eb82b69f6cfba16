"""The model card's base model: a name of the hub's, and never a path of this machine."""

from pathlib import Path

import pytest

from isotrope.training.card import _base_model

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("encoder", "line", "text"),
    [
        (MINILM, f'base_model: "{MINILM}"\n', MINILM),
        ("minilm", f'base_model: "{MINILM}"\n', "minilm"),
        ("0.5", 'base_model: "0.5"\n', "0.5"),
        ("scratch", "", "scratch"),
        ("{here}/before", "", "before"),
    ],
)
def test_the_base_is_a_name_of_the_hub_or_none(
    encoder: str, line: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "before").mkdir()
    assert _base_model(encoder.format(here=tmp_path)) == (line, text)
