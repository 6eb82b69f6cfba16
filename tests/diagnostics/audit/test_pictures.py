"""The audit of pictures: what it prints, and what it says of labels and of equal pixels."""

import json
from typing import Any

import numpy as np
import pytest

from isotrope.diagnostics.audit.options import AuditSettings
from isotrope.diagnostics.audit.pictures import AuditedPictures, PictureAudit
from isotrope.diagnostics.audit.run import audit_pictures
from isotrope.objectives.infonce import InfoNCE
from tests.diagnostics.audit.test_push import planted


def audited(*, labels: np.ndarray | None = None, scratch: bool = False, **options: Any):
    plain = planted()
    n = len(plain)
    marks = np.arange(n).astype(np.uint64)
    marks[50] = marks[20]
    names = [f"cats/{i}.png" for i in range(n)]
    return audit_pictures(
        AuditedPictures("photos", names, labels, marks, skipped=3),
        plain,
        InfoNCE(temperature=0.2),
        AuditSettings.read({"batch_size": 128, **options}),
        encoder="resnet9",
        method="simclr",
        scratch=scratch,
    )


def test_pictures_are_told_by_their_names() -> None:
    audit = audited()
    found = json.loads(audit.to_json())
    assert found["false_negatives"][0]["rows"] == ["cats/17.png", "cats/120.png"]
    assert found["groups"] == [["cats/17.png", "cats/120.png"]]
    assert found["repeated"] == ["cats/50.png"]
    assert (found["rows"], found["skipped"], found["same_label"]) == (200, 3, None)
    text = str(audit)
    assert text.startswith("200 pictures of photos, resnet9, simclr with infonce, batches of 128")
    assert "cats/17.png and cats/120.png" in text
    assert "not readable pictures: 3." in text
    assert "Whitening" not in text
    assert "label" not in text


def test_labels_are_a_check_of_the_pairs_that_are_listed() -> None:
    labels = np.arange(200) % 2
    assert audited(labels=labels).same_label == {"listed": 0.0, "all": pytest.approx(99 / 199)}
    labels[120] = labels[17]
    audit = audited(labels=labels)
    assert audit.same_label is not None
    assert audit.same_label["listed"] == 1.0
    assert "100% of the likely false negatives are pairs with equal labels. Among" in str(audit)
    assert "Among all pairs, this share is 50%." in str(audit)
    quiet = audited(labels=labels, suspect=2.0)
    assert "no two pictures seem to belong together" in str(quiet)
    assert "equal labels" not in str(quiet)
    assert quiet.same_label is not None
    assert quiet.same_label["listed"] is None
    assert json.loads(quiet.to_json())["same_label"]["listed"] is None


def test_flags_have_every_setting_of_the_objective() -> None:
    audit: PictureAudit = audited(batch_size=64)
    assert audit.flags == (
        "--method simclr --objective infonce --objective.temperature 0.2 "
        "--objective.in_batch true --batch-size 64"
    )


@pytest.mark.parametrize(
    ("scratch", "why"),
    [
        (True, "audit a trained encoder instead"),
        (False, "the rules for recommendations were made for texts"),
    ],
)
def test_nothing_is_recommended(scratch: bool, why: str) -> None:
    audit = audited(scratch=scratch)
    assert audit.recommended == {}
    assert f"Nothing to recommend: {why}" in str(audit)
    assert len([row for row in audit.settings if row.name == "temperature"]) == 7
