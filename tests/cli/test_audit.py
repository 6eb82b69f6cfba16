"""``isotrope audit``: what it prints and writes, and what it refuses before torch is imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.conftest import sentences

MINILM = "all-MiniLM-L6-v2"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{text}\t{text} and more\n" for text in sentences(30)))
    return file


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--encoder", MINILM, "--objective", "infonc"], "did you mean 'infonce'"),
        (["--encoder", MINILM, "--objective.margin", "0.3"], "margin"),
        (["--encoder", MINILM, "--plugin", "nowhere.py"], "nowhere.py"),
        (["--encoder", MINILM, "--dev", "nowhere.tsv"], "nowhere.tsv"),
        (["--encoder", MINILM, "--batch-size", "1"], "--batch-size 1: .* 2"),
        (["--encoder", MINILM, "--mine", "-2"], "--mine -2"),
        (["--encoder", MINILM, "--batch", "x"], "--batch-size x: "),
    ],
)
def test_bad_flags_are_refused_at_once(run, pairs: Path, flags: list[str], message: str) -> None:
    import re

    found = run("audit", pairs, *flags)
    assert found.code == 2
    assert re.search(message, found.err)
    assert len(found.err.strip().splitlines()) == 1


def test_bad_data_and_places_are_refused(run, pairs: Path, tmp_path: Path) -> None:
    asked = ("--encoder", MINILM)
    assert "no such file" in run("audit", tmp_path / "none.tsv", *asked).err
    found = run("audit", pairs, *asked, "--output", pairs)
    assert (found.code, "is a file; give a folder" in found.err) == (2, True)
    found = run("audit", f"qa={pairs}", f"nli={pairs}", *asked)
    assert (found.code, "a single data set; found " in found.err) == (2, True)
    (tmp_path / "one.txt").write_text("one text\n")
    found = run("audit", f"qa={tmp_path / 'one.txt'}", *asked)
    assert (found.code, "give at least 2 rows with text" in found.err) == (2, True)
    found = run("audit", pairs, *asked, "--objective", "barlowtwins")
    assert (found.code, "compares coordinates" in found.err) == (2, True)
    (tmp_path / "texts.txt").write_text("one text\nanother\nthird\n")
    found = run("audit", tmp_path / "texts.txt", *asked, "--mine", "2")
    assert (found.code, "single texts have no hard negatives" in found.err) == (2, True)


def test_a_saved_dataset_is_audited_as_what_it_holds(run, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    texts = datasets.Dataset.from_dict({"anchor": ["one text"], "positive": ["its pair"]})
    pictures = datasets.Dataset.from_dict(
        {"picture": [Image.new("RGB", (16, 16))]},
        features=datasets.Features({"picture": datasets.Image()}),
    )
    for rows, message in (
        (texts, "give at least 2 rows with text"),
        (pictures, "at least 2 pictures to train on"),
    ):
        for name, saved in (("alone", rows), ("splits", datasets.DatasetDict(train=rows))):
            folder = tmp_path / f"{name}{len(message)}"
            saved.save_to_disk(folder)
            encoder = MINILM if rows is texts else "resnet9"
            found = run("audit", folder, "--encoder", encoder)
            assert (found.code, message in found.err) == (2, True), found.err


def test_a_dataset_of_the_hub_is_looked_up_as_in_training(run) -> None:
    found = run("audit", "nobody/nothing", "--encoder", MINILM)
    assert (found.code, "no such data set on the hub" in found.err) == (2, True), found.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--columns", "a"], "--columns a .these are pictures"),
        (["digits", "--max-length", "9"], "--max-length 9 .these are pictures"),
        (["digits", "--methd", "simclr"], "did you mean --method"),
        (["digits", "--batch-size", "1"], "--batch-size 1: "),
        (["nowhere.npz"], "nowhere.npz: check the path; there is no such file"),
        (["digits", "photos"], "a single data set; found "),
        (["PAIRS", "--encoder", MINILM, "--width", "4"], "--width 4 .the data are texts"),
        (["PAIRS", "--encoder", MINILM, "--method.queue", "4"], "--method.queue 4.0 .the data are"),
    ],
)
def test_flags_of_the_other_kind_are_refused(
    run, pairs: Path, arguments: list[str], message: str
) -> None:
    import re

    found = run("audit", *(pairs if word == "PAIRS" else word for word in arguments))
    assert found.code == 2
    assert re.search(message, found.err)
    assert len(found.err.strip().splitlines()) == 1


def test_bad_pictures_are_refused_and_nothing_is_written(run, tmp_path: Path) -> None:
    from PIL import Image

    folder, output = tmp_path / "photos", tmp_path / "audit"
    folder.mkdir()
    asked = ("audit", folder, "--encoder", "resnet9", "--output", output)
    for message in ("put pictures into this folder", "at least 2 pictures to train on", None):
        if message is not None:
            found = run(*asked)
            assert (found.code, message in found.err) == (2, True)
            assert len(found.err.strip().splitlines()) == 1
        number = len(list(folder.iterdir()))
        Image.new("RGB", (16, 16), (90 * number, 0, 0)).save(folder / f"{number}.png")
    refused = {
        ("--objective", "barlowtwins"): "compares coordinates",
        ("--method", "dino"): "no gradient components",
        ("--encoder", MINILM): "give an image encoder",
        ("--suspect", "0"): "--suspect 0",
    }
    for flags, message in refused.items():
        found = run(*asked, *flags)
        assert (found.code, message in found.err) == (2, True), found.err
    assert not output.exists()


def test_a_folder_of_texts_is_not_one_of_pictures(run, tmp_path: Path) -> None:
    from PIL import Image

    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "one.txt").write_text("a text\nanother text\n", encoding="utf-8")
    (folder / "two.txt").write_text("a text\nanother text\n", encoding="utf-8")
    assert f"give one file, such as {folder / 'one.txt'}" in run("audit", folder).err
    (folder / "deep").mkdir()
    Image.new("RGB", (16, 16)).save(folder / "deep" / "photo.png")  # its labels are in one.txt
    found = run("audit", folder, "--encoder", "resnet9")
    assert "at least 2 pictures to train on" in found.err


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_the_columns_of_a_folder_of_tables_say_whether_it_has_texts(
    run, tmp_path: Path, suffix: str
) -> None:
    import pyarrow
    from pyarrow import feather, parquet

    def are_texts() -> bool:
        found = run("audit", tmp_path, "--encoder", "nowhere", "--image-size", "32")
        assert found.code == 2
        return "the data are texts" in found.err

    write = parquet.write_table if suffix == ".parquet" else feather.write_feather
    write(pyarrow.table({"query": ["q"], "answer": ["a"]}), tmp_path / f"train{suffix}")
    assert are_texts()
    for name, cell in (("image", "a.png"), ("photo", {"bytes": b"", "path": ""})):
        parquet.write_table(pyarrow.table({name: [cell], "text": ["a"]}), tmp_path / "b.parquet")
        assert not are_texts()
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    assert "it is not a parquet file" in run("audit", tmp_path).err


def test_what_can_be_known_without_torch_is_refused_without_it(pairs: Path) -> None:
    program = (
        "import sys\nfrom isotrope.cli.main import guarded\n"
        f"code = guarded(['audit', {str(pairs)!r}, '--encoder', 'x', '--objective', 'infonc'])\n"
        "sys.exit(code if 'torch' not in sys.modules else 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 2, done.stderr


@pytest.mark.slow
def test_through_the_command_line_with_a_real_encoder(run, tmp_path: Path) -> None:
    from examples.docstrings import STANDARD_LIBRARY, collect

    items = collect([STANDARD_LIBRARY])[:120]
    rows = [(item.query, " ".join(item.target.split()[:12])) for item in items]
    rows[40] = ("How do I reverse a list?", "list.reverse turns the items of a list around.")
    rows[100] = ("Reversing the items of a list", "Call reverse to turn a list around in place.")
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{anchor}\t{positive}\n" for anchor, positive in rows))
    output = tmp_path / "audit"
    asked = ("audit", data, "--encoder", MINILM, "--mine", "1", "--output", output)
    found = run(*asked, "--json")
    assert found.code == 0, found.err
    record = json.loads(found.out)
    assert [41, 101] in [pair["rows"] for pair in record["false_negatives"]]
    assert record == json.loads((output / "audit.json").read_text())
    page = (output / "audit.html").read_text()
    assert "Likely false negatives" in page
    assert "41 and 101" in page
    assert {path.name for path in output.iterdir()} == {
        *("audit.html", "audit.json", "cleaned.jsonl", "grouped.jsonl", "mined.jsonl"),
    }
    trained = ["train", output / "mined.jsonl", "--encoder", MINILM, "--max-steps", "1"]
    trained += ["--batch-size", "8", "--no-progress"]
    assert run(*trained, "--output", tmp_path / "run").code == 0
    from datasets import load_dataset

    table = load_dataset(
        "json", data_files=str(output / "grouped.jsonl"), cache_dir=str(tmp_path / "cache")
    )["train"]
    assert table.column_names == ["anchor", "positive", "label"]
    assert table[40]["label"] == table[100]["label"] != table[0]["label"]


@pytest.mark.slow
def test_pictures_through_the_command_line(run, tmp_path: Path) -> None:
    output = tmp_path / "audit"
    encoder = ("--encoder", "resnet9", "--width", "4", "--limit", "200", "--batch-size", "32")
    found = run("audit", "digits", *encoder, "--suspect", "0.001", "--output", output, "--json")
    assert found.code == 0, found.err
    record = json.loads(found.out)
    assert record == json.loads((output / "audit.json").read_text())
    assert {path.name for path in output.iterdir()} == {"audit.html", "audit.json"}
    assert (record["rows"], record["method"], record["scratch"]) == (200, "simclr", True)
    assert record["same_label"]["all"] == pytest.approx(0.1, abs=0.01)
    quick = ("--max-steps", "1", "--no-linear", "--no-progress", "--output", tmp_path / "run")
    assert run("train-images", "digits", *encoder, *record["train"].split(), *quick).code == 0
    again = run("audit", "digits", *encoder[-4:], "--encoder", tmp_path / "run", "--json")
    assert json.loads(again.out)["scratch"] is False
