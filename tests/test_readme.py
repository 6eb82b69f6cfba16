"""The README's examples for somebody's own trainer run as they stand there, and it stays short."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import isotrope
from tests.docs.run_page import blocks

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES = {block.title: block.text for block in blocks(README.read_text("utf-8")) if block.title}


def softmax_loss(anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    cosines = torch.cosine_similarity(anchors[:, None], positives[None], dim=2)
    return torch.nn.functional.cross_entropy(cosines / 0.05, torch.arange(len(anchors)))


def steps() -> Iterator[torch.Tensor]:
    torch.manual_seed(0)
    encoder = torch.nn.Linear(64, 32)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(60):
        x = torch.randn(16, 64)
        anchors, positives = encoder(x), encoder(x + 0.1 * torch.randn(16, 64))
        yield softmax_loss(anchors, positives)
        optimizer.step()
        optimizer.zero_grad()


def run(title: str, capsys: pytest.CaptureFixture[str], **given: Any) -> dict[str, Any]:
    """Run an example with what its reader has; return its names."""
    names = {"__name__": "__main__", "isotrope": isotrope, **given}
    exec(compile(EXAMPLES[title], title, "exec"), names)
    if "print(" in EXAMPLES[title]:
        assert re.search("^verdict: ", capsys.readouterr().out, re.MULTILINE)
    return names


def test_a_plain_loop(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("with_pytorch.py", capsys, steps=steps())
    assert [row["step"] for row in names["doctor"].rows] == [0, 10, 20, 30, 40, 50]
    assert all(0 < row["dissipation"] <= 1 for row in names["doctor"].rows)


@pytest.mark.filterwarnings("ignore")  # Lightning's advice about loaders
def test_lightning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Linear(64, 32)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            anchors, positives = self.encoder(batch), self.encoder(batch + 0.1)
            return softmax_loss(anchors, positives)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trainer(**given: Any) -> Any:
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        return lightning.Trainer(accelerator="cpu", **quiet, **given)

    monkeypatch.chdir(tmp_path)
    loader = torch.utils.data.DataLoader(torch.randn(1024, 64), batch_size=16)
    given = {"lightning": SimpleNamespace(Trainer=trainer), "module": Module(), "loader": loader}
    run("with_lightning.py", capsys, **given)
    assert (tmp_path / "runs" / "mine" / "metrics.csv").is_file()


def test_sentence_transformers() -> None:
    """Its trainer takes minutes: tests/adapters/doctor trains in it."""
    trained: list[dict[str, Any]] = []

    def trainer(*_: object, **given: Any) -> SimpleNamespace:
        return SimpleNamespace(train=lambda: trained.append(given))

    names = {"SentenceTransformerTrainer": trainer, "isotrope": isotrope}
    exec(
        EXAMPLES["with_sentence_transformers.py"],
        {**names, **dict.fromkeys(("model", "arguments", "data", "loss"))},
    )
    ((callback,),) = (given["callbacks"] for given in trained)
    assert isinstance(callback, isotrope.Doctor)


def test_it_is_short_and_has_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) < 620
    for command in ("make demo ", "make test "):
        assert f"\n{command}" in text
