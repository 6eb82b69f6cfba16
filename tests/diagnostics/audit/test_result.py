"""The audit as text, as JSON and as files, and what it refuses."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.core.table import TitledTable
from isotrope.data.sources import read
from isotrope.diagnostics.audit.alike import Alike
from isotrope.diagnostics.audit.options import AuditSettings
from isotrope.diagnostics.audit.push import ledger
from isotrope.diagnostics.audit.rows import read_rows
from isotrope.diagnostics.audit.run import audit_rows, checked_objective
from isotrope.diagnostics.audit.texts import TextAudit
from isotrope.diagnostics.probe import read_texts
from isotrope.evaluation.uncover import Uncovered
from isotrope.objectives.dcl import DCL
from isotrope.objectives.infonce import InfoNCE
from isotrope.objectives.triplet import MPT
from isotrope.paradigm.forms import Symmetric
from isotrope.paradigm.objective import Objective
from isotrope.reports.html import tables_page
from tests.diagnostics.audit.handmade import embedded, of, rows
from tests.diagnostics.audit.test_push import planted
from tests.refused import refused_setting

UNKNOWN = Uncovered("unknown", "not measured")


def audited(objective: Objective, **options: float) -> TextAudit:
    plain = planted()
    positives = plain.positives.clone()
    positives[3] = -positives[3]
    embedded = of(plain.anchors, positives)
    settings = AuditSettings.read(options)
    return audit_rows(rows(), embedded, objective, settings, encoder="drawn", uncovered=UNKNOWN)


def test_json_tells_rows_by_their_lines_the_most_suspected_first() -> None:
    found = json.loads(audited(InfoNCE()).to_json())
    assert found["false_negatives"][0]["rows"] == [18, 121]
    assert found["groups"] == [[18, 121]]
    assert found["apart"] == [4]
    assert set(found["recommended"]) == {"temperature"}
    assert found["rows"] == 200


def test_what_is_solved_has_one_name() -> None:
    audit = audited(InfoNCE())
    (table,) = (each for each in audit.tables() if each.title == "Settings")
    assert {"solved"} == {*audit.meanings} & {*table.columns}
    assert {"solved"} == {*audit.meanings} & {*audit.to_dict()["settings"][0]}


def test_no_batch_is_larger_than_the_data() -> None:
    audit = audited(InfoNCE(), batch_size=256)
    assert audit.batch_size == audit.to_dict()["batch_size"] == 200
    assert "--batch-size 200 " in audit.flags
    assert audit.sentence_transformers.endswith("per_device_train_batch_size=200")


def test_advice_names_what_to_change_and_says_when_there_is_nothing() -> None:
    audit = audited(InfoNCE(), suspect=9.0)
    assert list(audit.advice()) == [
        "Check the data at the rows 4: the two texts of such a row may not belong together, or "
        "be a hard pair to keep. cleaned.jsonl (--output) leaves these rows out."
    ]
    audit = replace(audit, found={**audit.found, "cut": np.arange(50)})
    assert list(audit.advice())[1] == (
        "Train with `--max-length 256`, the limit of the encoder: 25% of the rows have a text "
        "of over 32 tokens."
    )
    for most, remedy in (
        (512, "try `--max-length 512`"),
        (2**31 - 1, "try `--max-length 512`"),
        (256, "choose an encoder"),
    ):
        at_most = replace(audit, limits=(256, 256, most))
        assert f"Split long texts into passages, or {remedy}" in list(at_most.advice())[1]
    assert any("grouped.jsonl" in line for line in audited(InfoNCE()).advice())
    none = {**audit.found, "cut": np.arange(0), "apart": np.arange(0)}
    assert "Nothing: " in str(replace(audit, found=none))


def test_near_copies_are_counted_as_by_diagnose(tmp_path: Path) -> None:
    lines = [
        f"q {i}\tthe {i} sheet says what to do then, {chr(97 + i)}a {chr(97 + i)}b"
        for i in range(20)
    ]
    lines += [f"r {i}\tplease {line.split(chr(9))[1]}" for i, line in enumerate(lines[:6])]
    file = tmp_path / "faq.tsv"
    file.write_text("\n".join(lines) + "\n")
    options = (InfoNCE(), AuditSettings())
    audit = audit_rows(read_rows(file), embedded(26), *options, encoder="drawn", uncovered=UNKNOWN)
    share = read_texts([file]).copies
    assert 0.2 < share == audit.near_copies.share < 1
    assert any(f"{share:.2%}" in line and "--groups" in line for line in audit.advice())
    assert json.loads(audit.to_json())["near_copies"] == asdict(audit.near_copies)
    assert not any("--groups`" in line and "%" in line for line in audited(InfoNCE()).advice())


@pytest.mark.parametrize(("cut", "pushed"), [(10, 0.01), (11, 0.01), (10, 0.011), (11, 0.011)])
def test_a_twentieth_of_cut_rows_and_a_hundredth_of_push_need_no_advice(
    cut: int, pushed: float
) -> None:
    audit = audited(InfoNCE())
    share = np.zeros(len(audit.alike.share))
    share[0] = pushed
    found = {**audit.found, "cut": np.arange(cut), "apart": np.arange(0)}
    audit = replace(audit, found=found, suspects=1, alike=replace(audit.alike, share=share))
    advice = "\n".join(audit.advice())
    assert ("--max-length 256" in advice) == (cut > 10)
    assert ("--groups label" in advice) == (pushed > 0.01)


def test_the_limits_of_a_false_negative_and_of_a_hard_negative() -> None:
    """Four hundred pairs of rows, from hardly to almost alike."""
    anchors = embedded(800).anchors
    cosines = torch.linspace(0.2, 0.95, 400)[:, None]
    anchors[1::2] = cosines * anchors[::2] + (1 - cosines**2).sqrt() * anchors[1::2]
    close, objective = of(anchors, anchors), InfoNCE(temperature=0.05)
    usual, loose = (
        audit_rows(rows(800), close, objective, settings, encoder="drawn", uncovered=UNKNOWN)
        for settings in (AuditSettings(mine=9), AuditSettings(mine=9, hardness=1.0))
    )
    evidence = usual.alike.evidence[usual.suspects - 1 : usual.suspects + 1]
    assert 0.62 > evidence[0] >= 0.6 > evidence[1] > 0.58
    book = ledger(close, objective, None, keep=36)
    share = book.force / book.row_force[:, None]
    hardest = []
    for audit in (usual, loose):
        assert audit.mined is not None
        hardest.append(max(share[i][book.partners[i] == j].max() for i, j in audit.mined))
    assert 0.29 < hardest[0] <= 0.3
    assert hardest[1] > 0.5


def test_files_are_what_a_training_reads() -> None:
    audit = audited(InfoNCE(), mine=2, hardness=1.0)
    files = {
        name: [json.loads(line) for line in content.decode().splitlines()]
        for name, content in audit.files().items()
    }
    cleaned = [row["anchor"] for row in files["cleaned.jsonl"]]
    assert len(cleaned) == 198
    assert not {"question 3", "question 120"} & set(cleaned)
    assert audit.cleaned == (
        "cleaned.jsonl has 198 of the 200 rows; left out are rows that are apart (1) or repeated "
        "(0), and all but one row of each group (1)"
    )
    labels = [row["label"] for row in files["grouped.jsonl"]]
    assert labels[17] == labels[120]
    assert len(set(labels)) == 199
    mined = files["mined.jsonl"]
    assert set(mined[0]) == {"anchor", "positive", "negative", "label"}
    of_planted = [row["negative"] for row in mined if row["anchor"] == "question 17"]
    assert "answer 120" not in of_planted


def audit_of(records: list[tuple[str, ...]]) -> TextAudit:
    """The audit of planted rows with these texts, which may have hard negatives."""
    plain = planted()
    return audit_rows(
        read_rows([{"anchor": a, "positive": p, "negative": n} for a, p, *n in records]),
        of(plain.anchors, plain.positives),
        InfoNCE(),
        AuditSettings(),
        encoder="drawn",
        uncovered=UNKNOWN,
    )


def test_files_begin_with_rows_without_hard_negatives(tmp_path: Path) -> None:
    records = [(f"question {i}", f"answer {i}", f"negative {i}") for i in range(200)]
    records[:150] = [record[:2] for record in records[:150]]
    audit = audit_of(records)
    (tmp_path / "grouped.jsonl").write_bytes(audit.files()["grouped.jsonl"])
    again = read([tmp_path / "grouped.jsonl"], groups="label")
    assert [record.texts for record in again] == records


@pytest.mark.parametrize("counts", [(1,), (2,), (1, 2), (0, 3)])
def test_each_negative_is_a_column_of_texts(tmp_path: Path, counts: tuple[int, ...]) -> None:
    json_of = pytest.importorskip("pyarrow.json")
    records = [
        (f"question {i}", f"answer {i}", *(f"{i} not {k}" for k in range(counts[i % len(counts)])))
        for i in range(200)
    ]
    audit = audit_of(records)
    path = tmp_path / "grouped.jsonl"
    path.write_bytes(audit.files()["grouped.jsonl"])
    names = [f"negative_{i + 1}" for i in range(max(counts))] if max(counts) > 1 else ["negative"]
    types = {field.name: str(field.type) for field in json_of.read_json(path).schema}
    assert types == dict.fromkeys(["anchor", "positive", *names], "string") | {"label": "int64"}
    assert [record.texts for record in read([path], groups="label")] == records


def test_single_texts_are_not_paired_by_labels_unless_asked(tmp_path: Path) -> None:
    plain = planted()
    audit = audit_rows(
        read_rows([f"text {i}" for i in range(200)]),
        of(plain.anchors, plain.positives, lengths=np.full((200, 1), 9)),
        InfoNCE(),
        AuditSettings(),
        encoder="drawn",
        uncovered=UNKNOWN,
    )
    path = tmp_path / "grouped.jsonl"
    path.write_bytes(audit.files()["grouped.jsonl"])
    texts = [(f"text {i}",) for i in range(200)]
    assert [record.texts for record in read([path], groups="label")] == texts
    assert [record.texts for record in read([path], columns=["anchor"])] == texts
    with pytest.raises(InputError, match=r"choose columns by name: .*anchor"):
        list(read([path]))


def test_a_group_keeps_its_first_sound_row_with_all_hard_negatives() -> None:
    records = [(f"question {i}", f"answer {i}", f"negative {i}") for i in range(200)]
    records[21] = ("question 20", "answer 20", "another negative")
    records[23] = records[22]
    records[61] = ("Question, 60!", "ANSWER 60", "a third negative")  # near-identical
    plain = planted()
    audit = audit_rows(
        read_rows(records),
        of(plain.anchors, plain.positives),
        InfoNCE(),
        AuditSettings(),
        encoder="drawn",
        uncovered=UNKNOWN,
    )
    pairs = np.array([[17, 120], [20, 40], [21, 40], [22, 23], [50, 51], [51, 52], [60, 61]])
    audit = replace(
        audit,
        alike=Alike(pairs, *np.ones((3, 7))),
        suspects=7,
        found={**audit.found, "apart": np.array([17, 50])},
    )
    kept = [json.loads(line)["negative"] for line in audit.files()["cleaned.jsonl"].splitlines()]
    gone = {f"negative {i}" for i in (17, 21, 23, 40, 50, 52, 61)}
    assert set(kept) == {f"negative {i}" for i in range(200)} - gone | {"another negative"}
    assert len(kept) == 200 - 6


@pytest.mark.parametrize(("size", "limit"), [(10, None), (11, "over a twentieth of")])
def test_the_note_says_which_linked_rows_are_pushed_apart(size: int, limit: str | None) -> None:
    chain = [(f"a{i}", f"a{i + 1}") for i in range(size)]
    audit = audit_of([*chain, *((f"q{i}", f"p{i}") for i in range(size, 200))])
    text = " ".join(str(audit).split())
    assert f"(1 group of up to {size})" in text
    assert ("does not push them apart." in text) == (limit is None)
    assert limit is None or limit in text


def test_the_number_of_mined_negatives_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = audited(InfoNCE(), mine=2, hardness=1.0)
    audit.write(tmp_path, "")
    assert "mined.jsonl: 400 negatives for 200 rows\n" in capsys.readouterr().err
    assert len((tmp_path / "mined.jsonl").read_text().splitlines()) == 400


def test_a_file_for_which_too_few_rows_are_left_is_not_written() -> None:
    audit = audited(InfoNCE(), mine=1, hardness=1.0)
    assert audit.unwritten == {}
    nothing = np.zeros((1, 2), np.int64)
    apart = {**audit.found, "apart": np.arange(199)}
    audit = replace(audit, found=apart, mined=nothing)
    assert list(audit.files()) == ["grouped.jsonl"]
    assert list(audit.unwritten) == ["cleaned.jsonl", "mined.jsonl"]
    assert "fewer than two rows are left" in audit.unwritten["cleaned.jsonl"]
    assert "fewer than two hard negatives are below" in audit.unwritten["mined.jsonl"]


def test_every_file_has_the_groups_of_the_data(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [{"anchor": f"q{i}", "positive": f"p{i}", "topic": i // 20} for i in range(200)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plain, data = planted(), read_rows(file, groups="topic")
    groups = torch.arange(200) // 20
    audit = audit_rows(
        data,
        of(plain.anchors, plain.positives, groups=groups),
        InfoNCE(),
        AuditSettings(mine=1, hardness=1.0, suspect=2.0),
        encoder="drawn",
        uncovered=UNKNOWN,
    )
    files = audit.files()
    assert list(files) == ["cleaned.jsonl", "grouped.jsonl", "mined.jsonl"]
    for content in files.values():
        rows = [json.loads(line) for line in content.splitlines()]
        assert len({(int(row["anchor"][1:]) // 20, row["label"]) for row in rows}) == 10


def test_flags_and_arguments_are_of_the_recommended_values() -> None:
    plain = audited(InfoNCE(temperature=0.2))
    (chosen,) = plain.recommendations
    flags = (
        f"--objective infonce --objective.temperature {chosen.value:g} --batch-size 64 --head none"
    )
    assert plain.flags == flags
    scale = f"MultipleNegativesRankingLoss(model, scale={1 / chosen.value:.4g})"
    assert plain.sentence_transformers.startswith(scale)
    margin = audited(MPT())
    assert margin.sentence_transformers.startswith("ObjectiveLoss(model, 'mpt', margin=")
    edited = audited(InfoNCE().modify(ratio=1.5))
    assert "--objective.ratio static:1.5" in edited.flags


def test_it_is_printed_as_tables() -> None:
    text = str(audited(InfoNCE()))
    assert text.startswith("200 pairs of the data, drawn, infonce, batches of 64")
    assert "18 and 121" in text
    assert "the anchor is nearer to most other positives" in text
    audit = audited(InfoNCE())
    audit = replace(audit, rows=replace(audit.rows, left_out="2 rows with no label"))
    assert "Skipped: 2 rows with no label." in str(audit)
    quiet = audited(InfoNCE(), suspect=2.0)
    assert "no two rows seem to belong together" in str(quiet)
    assert f"{max(quiet.alike.evidence):.3f}; limit: `--suspect 2`)" in str(quiet)
    assert repr(quiet).endswith("0 likely false negatives)")


def test_the_settings_that_are_set_and_recommended_are_marked() -> None:
    chosen = audited(InfoNCE()).recommended["temperature"]
    table = str(audited(InfoNCE(temperature=0.01)))
    assert f"\ntemperature {chosen:g} (recommended) " in table
    assert "\ntemperature 0.01 (set) " in table
    same = str(audited(InfoNCE(temperature=chosen)))
    assert f"\ntemperature {chosen:g} (set, recommended) " in same
    assert same.count("recommended)") == 1


def test_why_no_temperature_is_recommended_is_printed() -> None:
    audit = audited(DCL())
    assert audit.recommended == {}
    assert "the gradient dissipation of this objective does not depend on its" in str(audit)
    assert "--objective dcl --batch-size" in audit.flags


def test_objectives_without_a_push_between_rows_are_refused() -> None:
    with pytest.raises(InputError, match="compares coordinates, not rows, so rows do not push"):
        checked_objective("barlowtwins")
    with pytest.raises(InputError, match="dino has no gradient components"):
        checked_objective("dino")
    with pytest.raises(InputError, match=r"infonce cannot be audited: .* in_batch=True"):
        checked_objective("infonce", {"in_batch": "false"})
    with pytest.raises(InputError, match="give the objective by its name"):
        checked_objective(InfoNCE(), {"temperature": 0.1})
    with pytest.raises(InputError, match="call modify first, then symmetric"):
        checked_objective(Symmetric(objective=InfoNCE().symmetric()))
    assert checked_objective("infonce", {"temperature": 0.1}) == InfoNCE(temperature=0.1)


@pytest.mark.parametrize(
    "numbers",
    [{"batch_size": 1}, {"suspect": 0.0}, {"mine": -1}, {"hardness": 1.5}, {"seed": -1}],
)
def test_numbers_out_of_range_are_refused(numbers: dict[str, float]) -> None:
    ((name, value),) = numbers.items()
    with refused_setting(name, value=value):
        AuditSettings.read(numbers)


def test_rows_that_are_all_one_text() -> None:
    same = torch.ones(6, 4)
    groups = torch.zeros(6, dtype=torch.long)
    embedded = of(same, same, groups=groups)
    found = audit_rows(
        rows(6), embedded, InfoNCE(), AuditSettings(), encoder="x", uncovered=UNKNOWN
    )
    assert found.recommended == {}
    assert "no anchor has a negative" in str(found)
    json.loads(found.to_json())


def test_the_page_shows_texts_as_texts() -> None:
    tables = [TitledTable("T", "a\nb", ("rows", "text"), [("1 and 2", "<script>x</script>")])]
    page = tables_page("Before training", "lead <i>", tables)
    assert "&lt;script&gt;x" in page
    assert "lead &lt;i&gt;" in page
    assert '<p class="note">a</p>\n<p class="note">b</p>' in page
    assert "<script" not in page
