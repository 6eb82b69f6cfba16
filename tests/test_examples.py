"""The scripts of examples run, and show what they say."""

import json
import re
import runpy
from pathlib import Path

import pytest

from isotrope.objectives import ModifiedBarlowTwins

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, capsys) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_surgery_changes_one_component_at_a_time(capsys) -> None:
    """Its last assertion is that it ends at the registered objective's gradient."""
    out = run("surgery.py", capsys)
    assert out.endswith("The last gradient is that of ModifiedBarlowTwins(), to the last bit.\n")
    steps = re.split(r"\n(?=Barlow|\+ )", out.strip())
    assert [s.split(":")[0].split(",")[0] for s in steps] == [
        "Barlow Twins",
        "+ GD",
        "+ W",
        "+ R",
    ]

    def lines(label: str) -> list[str]:
        return [re.search(rf"^  {label} +(.*)$", s, re.M)[1] for s in steps]

    dissipation, weight, ratio = lines("GD"), lines("W"), lines("R")
    assert dissipation[0] == "mean 1.00: 64 of 64 anchors move"
    assert dissipation[1] != dissipation[0]
    assert dissipation[1] == dissipation[2] == dissipation[3]
    assert weight[0] == weight[1] != weight[2] == weight[3]
    assert ratio[0] != ratio[3]
    assert ratio[3] == "1.50 to 1.50 over the anchors"
    # from the second edit on the step leads to the positive
    cosines = [float(re.search(r"step +cosine ([+-]\S+)", s)[1]) for s in steps]
    assert max(cosines[:2]) < 0.1 < 0.8 < min(cosines[2:])


def test_surgery_notices_another_end(monkeypatch, capsys) -> None:
    script = runpy.run_path(str(EXAMPLES / "surgery.py"))
    other = lambda: ModifiedBarlowTwins(ratio=1.25)  # noqa: E731
    monkeypatch.setitem(script["main"].__globals__, "ModifiedBarlowTwins", other)
    with pytest.raises(AssertionError):
        script["main"]()
    assert "to the last bit" not in capsys.readouterr().out


@pytest.mark.parametrize(("questions", "shared"), [(1, False), (5, True)])
def test_a_split_shares_no_question(tmp_path, monkeypatch, capsys, questions, shared) -> None:
    rows = [f"question {i},answer {i // questions}\n" for i in range(300)]
    (tmp_path / "faq.csv").write_text("frage,antwort\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["split.py", "faq.csv", "--columns", "frage,antwort"])
    said = run("split.py", capsys)
    parts = [
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("train.jsonl", "test.jsonl")
    ]
    assert list(map(len, parts)) == [270, 30]  # exactly a tenth
    sides = [[{pair[side] for pair in part} for part in parts] for side in ("anchor", "positive")]
    assert not sides[0][0] & sides[0][1]
    assert bool(sides[1][0] & sides[1][1]) == shared
    assert ("answers are in both" in said) == shared


def test_no_test_question_is_a_text_of_the_training(tmp_path, monkeypatch, capsys) -> None:
    rows = [f"text {i}\tText {i + 1}!\n" for i in range(200)]  # paraphrases, all linked
    (tmp_path / "chain.tsv").write_text("question1\tquestion2\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["split.py", "chain.tsv", "--rows", "40"])
    said = run("split.py", capsys)
    train, test = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("train.jsonl", "test.jsonl")
    )
    assert len(test) == 40
    texts = {text.lower().strip("!") for pair in train for text in pair.values()}
    assert not texts & {pair["anchor"] for pair in test}
    assert f"left out of train.jsonl: {200 - 40 - len(train)} pairs" in said


def test_a_split_has_the_number_of_rows_that_was_asked(tmp_path, monkeypatch, capsys) -> None:
    rows = [f"question {i},answer {i // 2}\n" for i in range(300)]  # linked in twos
    (tmp_path / "faq.csv").write_text("frage,antwort\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    flags = ["--columns", "frage,antwort", "--rows"]
    for number, tested in (("40", 40), ("41", 40)):
        monkeypatch.setattr("sys.argv", ["split.py", "faq.csv", *flags, number])
        assert f"{tested} pairs in test.jsonl: no text of a test pair" in run("split.py", capsys)
        (tmp_path / "train.jsonl").unlink()
        (tmp_path / "test.jsonl").unlink()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("faq.csv --rows 20", "train.jsonl would be empty"),
        ("faq.csv --rows -1", "test.jsonl would be empty"),
        ("faq.csv --share 15", "choose a --share between 0 and 1"),
        ("faq.csv --share 0", "choose a --share between 0 and 1"),
        ("faq.csv --share nan", "choose a --share between 0 and 1"),
        ("faq.csv --share 0.001", "test.jsonl would be empty"),
        ("faq.csv --share 0.999", "train.jsonl would be empty"),
        ("gone.csv", "gone.csv"),
        ("faq.csv --columns frage,gone", "gone"),
    ],
)
def test_a_split_that_is_none_is_refused(tmp_path, monkeypatch, capsys, arguments, why) -> None:
    rows = [f"question {i},answer {i}\n" for i in range(20)]
    (tmp_path / "faq.csv").write_text("frage,antwort\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["split.py", "--columns", "frage,antwort", *arguments.split()])
    with pytest.raises(SystemExit) as stop:
        run("split.py", capsys)
    assert stop.value.code == 2
    assert why in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.glob("*.jsonl"))


def test_no_test_text_is_a_hard_negative_of_the_training(tmp_path, monkeypatch, capsys) -> None:
    rows = [
        {"query": f"question {i}", "pos": f"answer {i}", "neg": [f"Answer {(i + 1) % 100}!", "no"]}
        for i in range(100)
    ]
    (tmp_path / "mined.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["split.py", "mined.jsonl"])
    assert "left out of train.jsonl: " in run("split.py", capsys)
    train, test = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("train.jsonl", "test.jsonl")
    )
    asked = {f"Answer {row['positive'].split()[1]}!" for row in test}
    assert not asked & {text for row in train for text in row["negative"]}
    assert all(len(row["negative"]) == 2 for row in test)
    assert all("no" in row["negative"] for row in train)
