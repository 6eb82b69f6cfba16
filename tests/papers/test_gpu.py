"""The larger encoder for a GPU: what is trained on it, and a run of a few steps."""

import gzip
from pathlib import Path

import pytest

from papers import gpu, text_protocol
from papers.machinery.data_registry import RAW
from papers.text_command import RESULTS, stored


def test_nothing_is_chosen_on_it() -> None:
    raw = stored(RAW, RESULTS)
    trainings = gpu.jobs(raw)
    assert len(trainings) == 9
    for name, jobs in trainings.items():
        chosen = text_protocol.trainings(RAW, raw, name)[0].settings
        assert [job.seed for job in jobs] == [1, 2, 3]
        own = jobs[0].settings
        assert own["max_steps"] == 2_000
        assert own["texts"] == "wiki:128000"
        same = [k for k in chosen if k.startswith("objective") or k == "learning_rate"]
        assert {k: own[k] for k in same} == {k: chosen[k] for k in same}
    assert len(gpu.jobs(raw, tiny=True)["mhe"]) == 1


@pytest.mark.slow
def test_a_few_steps_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["stone", "river", "small", "green", "walks", "under", "house", "light", "seven"]
    lines = [f"{' '.join(words[(i * k) % 9] for k in range(2, 9))} {i}" for i in range(1, 900)]
    (tmp_path / "corpus").mkdir()
    with gzip.open(tmp_path / "corpus/wiki_en_1m.txt.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    (tmp_path / "sts/stsb").mkdir(parents=True)
    pairs = [f"{i % 6}\t{lines[i]}\t{lines[2 * i]}\n" for i in range(40)]
    (tmp_path / "sts/stsb/dev.tsv").write_text("".join(pairs))
    command = ["--tiny", "--data", str(tmp_path), "--output", str(tmp_path / "out")]
    assert gpu.run([*command, "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "| mhe | - | - |" in out, "nothing is scored"
    assert (tmp_path / "out/cells/text.jsonl").read_text().count("\n") == 9
