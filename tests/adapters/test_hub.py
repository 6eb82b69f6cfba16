"""``isotrope push``: huggingface_hub itself, against a stand-in of the hub in this process."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard, constants

import isotrope
from isotrope.adapters import hub
from isotrope.cli.main import guarded
from isotrope.core.errors import InputError, MissingExtra
from isotrope.core.result import Result
from isotrope.data.text.sts_sets import TASKS
from isotrope.evaluation.store import Store
from tests.adapters.hub_server import TOKEN, Hub, running
from tests.training.conftest import IMAGES, QUICK, sentences


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was evaluated."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "corpus.txt").write_text("\n".join(sentences(200)) + "\n")
    lines = (f"{i % 6}\t{a}\t{b}\n" for i, (a, b) in enumerate(pairwise(sentences(20))))
    (folder / "own.tsv").write_text("".join(lines))
    settings = {**QUICK, "max_steps": 1, "output": str(folder / "run"), "device": "cpu"}
    isotrope.fit(str(folder / "corpus.txt"), **settings)
    isotrope.evaluate(folder / "run", sts=folder / "own.tsv", device="cpu")
    isotrope.evaluate(folder / "run", corpus=folder / "corpus.txt", device="cpu")
    model = isotrope.load(folder / "run", device="cpu").fingerprint()
    store = Store(folder / "run" / "evaluations")
    for day, scores in (("01", range(40, 47)), ("02", range(60, 67))):
        for task, score in zip(TASKS, scores, strict=True):
            found = {"spearman": float(score)}
            details, metrics = {"tasks": {task: found}}, {task: float(score)}
            result = Result("sts", "run", metrics, details, {"time": f"2026-{day}"})
            key = {"model": model, "kind": "sts", "task": task, "data": day, "settings": {}}
            store.keep(key, result)
    (store.folder / "broken.json").write_text("{")
    return folder / "run"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import close_session

    with running() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        close_session()
        yield found
    close_session()


def test_what_was_pushed_is_a_model_with_its_card(
    run: Path, server: Hub, tmp_path: Path, capsys
) -> None:
    from sentence_transformers import SentenceTransformer

    assert guarded(["push", str(run), "user/name"]) == 0
    assert capsys.readouterr().out.strip() == f"{server.address}/user/name"
    repo = server.repos["user/name"]
    assert not repo["private"]
    for path, content in repo["files"].items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    local = run / "model"
    assert set(repo["files"]) == {
        f.relative_to(local).as_posix() for f in local.rglob("*") if f.is_file()
    }
    texts = ["a stone in the river", "a lantern"]
    np.testing.assert_array_equal(
        SentenceTransformer(str(tmp_path), device="cpu").encode(texts),
        SentenceTransformer(str(local), device="cpu").encode(texts),
    )
    card = ModelCard.load(tmp_path / "README.md")
    about = card.data.to_dict()
    assert about["library_name"] == "sentence-transformers"
    assert {"sentence-transformers", "isotrope"} <= set(about["tags"])
    assert "base_model" not in about, "an encoder from scratch has none"
    scored = {r.dataset_name: r.metric_value for r in card.data.eval_results}
    own = isotrope.evaluate(run, sts=run.parent / "own.tsv", device="cpu").metrics["own.tsv"]
    newest = dict(zip(TASKS, range(60, 67), strict=True))
    assert scored == {**newest, "average": 63.0, "own.tsv": own}
    assert "| sts | STS12 | 60 |" in card.text
    assert "corpus" not in card.text.partition("Scored by")[2]
    for said in ("infonce", "temperature 0.05", "fingerprint `", "@misc{vandenoord2018"):
        assert said in card.text
    assert 'SentenceTransformer("user/name")' in card.text
    assert card.text.index("STS12") < card.text.index("## Citation")


def test_private_is_private_or_refused(run: Path, server: Hub, capsys) -> None:
    assert guarded(["push", str(run), "user/hidden", "--private"]) == 0
    assert server.repos["user/hidden"]["private"]
    assert guarded(["push", str(run), "user/hidden"]) == 0
    server.repos["user/open"] = {"private": False, "files": {}}
    assert guarded(["push", str(run), "user/open", "--private"]) == 2
    assert "user/open is there already and public" in capsys.readouterr().err
    assert not server.repos["user/open"]["files"]


def test_a_dry_run_asks_nobody(run: Path, capsys, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert guarded(["push", str(run), "user/name", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "model.safetensors" in out
    assert "README.md" in out
    assert hub.prepare(run, "user/name").card in out


def test_scores_of_other_weights_stay_away(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    shutil.copytree(run, other)
    encoder = isotrope.load(run, device="cpu")
    next(encoder.parameters()).data += 1
    encoder.save(other / "model", card=(run / "model" / "README.md").read_text())
    assert "Scored by" in hub.prepare(run, "user/name").card
    assert "Scored by" not in hub.prepare(other, "user/name").card
    assert "Scored by" not in hub.prepare(run / "model", "user/name").card


def test_an_encoder_of_images_has_a_card_too(tmp_path: Path) -> None:
    settings = {**IMAGES, "max_steps": 1, "output": str(tmp_path / "run"), "device": "cpu"}
    run = isotrope.fit_images(settings.pop("data"), **settings).output
    found = isotrope.evaluate(run, knn=True, linear=False, device="cpu").metrics["knn_top1"]
    upload = hub.prepare(run, "user/name")
    about = ModelCard(upload.card).data.to_dict()
    assert about["pipeline_tag"] == "image-feature-extraction"
    assert "model_name" not in about
    assert f"| knn | knn_top1 | {found:g} |" in upload.card
    assert "@misc{chen2020" in upload.card
    assert 'isotrope.load("user/name")' in upload.card


@pytest.mark.parametrize(
    ("base", "named"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
        ("minilm", "sentence-transformers/all-MiniLM-L6-v2"),
        ("{here}/runs/before", None),
    ],
)
def test_the_base_is_a_name_of_the_hub_or_none(
    run: Path, tmp_path: Path, base: str, named: str | None
) -> None:
    base = base.format(here=tmp_path)
    if named is None:
        Path(base).mkdir(parents=True)
    shutil.copytree(run / "model", tmp_path / "model")
    text = f"---\nbase_model: {base}\n---\n\nFrom {base}.\n"
    (tmp_path / "model" / "README.md").write_text(text)
    card = hub.prepare(tmp_path / "model", "user/name").card
    assert ModelCard(card).data.base_model == named
    assert str(tmp_path) not in card


def test_the_hub_refuses(run: Path, server: Hub, capsys, monkeypatch) -> None:
    assert guarded(["push", str(run), "other/name"]) == 2
    assert "cannot push to other/name: " in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", "hf_unknown")
    assert guarded(["push", str(run), "user/name"]) == 2
    assert "Invalid user token" in capsys.readouterr().err
    assert "user/name" not in server.repos


def test_no_network_is_said_at_once(run: Path, server: Hub, monkeypatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"cannot push to user/name: the hub cannot be reached"):
        hub.reachable("user/name")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(hub, "ANSWER_WITHIN", 0.2)
        with pytest.raises(InputError, match=f"{address} does not answer; is there a network"):
            hub.reachable("user/name")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"switched off \(HF_HUB_OFFLINE is set\)"):
        hub.reachable("user/name")


def test_who_is_not_logged_in_is_told_how(run: Path, server: Hub, monkeypatch) -> None:
    monkeypatch.setattr(hub, "get_token", lambda: None)
    with pytest.raises(InputError, match="not logged in; run `hf auth login`"):
        hub.reachable("user/name")
    assert not server.asked


def test_what_cannot_be_pushed(run: Path, tmp_path: Path) -> None:
    for repo, message in (
        ("name", "does not say whose it is: give user/name"),
        ("a/b/c", "cannot be a name on the hub"),
        ("user/na me", "cannot be a name on the hub"),
    ):
        with pytest.raises(InputError, match=message):
            hub.check(run, repo)
    with pytest.raises(InputError, match="there is no folder"):
        hub.check(tmp_path / "absent", "user/name")
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(InputError, match=r"has not come to its end \(no result.json\)"):
        hub.check(tmp_path / "run", "user/name")
    model = tmp_path / "run" / "model"
    for text in ("---\n- a\n- b\n---\n", "---\na: [\n---\n"):
        (model / "README.md").write_text(text)
        with pytest.raises(InputError, match="is no model card"):
            hub.prepare(model, "user/name")
    (model / "README.md").unlink()
    with pytest.raises(InputError, match="a model on the hub needs a card"):
        hub.prepare(model, "user/name")


def test_without_the_package_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "isotrope.adapters.hub")
    with pytest.raises(MissingExtra, match=r"pip install '\.\[train\]'"):
        import isotrope.adapters.hub  # noqa: F401


@pytest.mark.slow
def test_the_command_without_a_network_takes_seconds(run: Path, tmp_path: Path) -> None:
    """A process of its own, whose hub is a port that nobody listens at."""
    import os

    began = time.monotonic()
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": TOKEN}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-m", "isotrope", "push", str(run), "user/name"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("isotrope: error: cannot push to user/name: the hub cannot be")
    assert done.stderr.count("\n") == 1
    print(f"{time.monotonic() - began:.1f} s")
