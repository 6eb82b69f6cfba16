"""The doctor's rules, each on a case that has what it is about and on one that has not quite."""

import json
import math
import random
import re
from dataclasses import asdict, replace
from typing import Any

import pytest

from isotrope.adapters.doctor.messages import HOSTS
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.evidence import RunEvidence, Words
from isotrope.diagnostics.findings import HEALTHY, MISSED, Diagnosis, Evidence
from isotrope.diagnostics.metrics import METRICS
from isotrope.diagnostics.readings import gain_in_score
from isotrope.diagnostics.verdict import THRESHOLDS, compared
from isotrope.diagnostics.verdicts import VERDICTS
from isotrope.measures.judgement import Judgement, Outcome
from isotrope.objectives import InfoNCE
from isotrope.paradigm import registry
from isotrope.training.images.moco_v3 import MoCoV3Options

SOUND: dict[str, float] = {
    "loss": 1.5,
    "dissipation": 0.6,
    "dead": 0.1,
    "hardest_share": 0.3,
    "ratio": 1.0,
    "above_bound": 1.0,
    "alignment": 0.5,
    "uniformity": -3.0,
    "norm": 2.0,
    "positive_mean": 0.7,
    "positive_std": 0.1,
    "negative_mean": 1.4,
    "negative_std": 0.15,
    "std": 0.08,
    "effective_rank": 40.0,
    "false_negatives": 0.0,
}
"""What a batch of 64 pairs of a healthy run looks like."""


def case(
    *,
    start: dict[str, float] | None = None,
    objective: str = "infonce",
    parameters: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    kind: str = "text",
    scores: tuple[float, ...] = (80.0, 81.0),
    probe: dict[str, float] | None = None,
    details: dict[str, Any] | None = None,
    **end: float,
) -> RunEvidence:
    """A run of ten logged steps: ``start`` differs at step 0, ``end`` at all others."""
    rows = [{"step": 0.0, **SOUND, "loss": 3.0, "uniformity": -1.5, **(start or {})}]
    rows += [{"step": 10.0 * i, **SOUND, **end} for i in range(1, 10)]
    return RunEvidence(
        kind=kind,  # type: ignore[arg-type]
        rows=rows,
        scores=[(100 * i, score) for i, score in enumerate(scores)],
        settings={"batch-size": 64, "learning-rate": 3e-5, **(settings or {})},
        objective=registry.build(objective, parameters),
        probe=probe,
        details=details or {},
    )


def first(found: Diagnosis) -> tuple[str, str]:
    """The first verdict and its change."""
    return found.verdict[0], found.findings[0].change if found.findings else ""


def test_a_sound_run_is_healthy() -> None:
    found = diagnose(case())
    assert found.verdict == (HEALTHY,)
    record = json.loads(found.to_json())
    assert {k: record[k] for k in ("verdict", "findings", "judgement")} == {
        "verdict": ["healthy"], "findings": [], "judgement": None,
    }  # fmt: skip
    assert [number["name"] for number in record["numbers"]] == [
        "logged_steps", "dead_early", "hardest_times_uniform", "rank_share", "above_bound",
    ]  # fmt: skip


def test_a_healthy_verdict_prints_its_key_numbers_with_their_thresholds() -> None:
    lines = str(diagnose(case())).splitlines()
    assert lines[0] == "verdict: healthy"
    done = "- gradient dissipation (GD) below 0.01"
    assert f"{done}: 10% of the anchors (a fault if above 90%)" in lines
    line = "- push on the hardest negative: 18.9 times an even share among 63 negatives"
    assert f"{line} (a fault if below 1.5)" in lines


@pytest.mark.parametrize("outcome", ["worse", "not known", "undecided"])
def test_a_fall_within_noise_is_no_overfitting(outcome: Outcome) -> None:
    judged = Judgement(outcome, "what became of it", {})
    found = diagnose(replace(case(scores=(80.0, 78.0)), judgement=judged))
    assert ("overfitting" in found.verdict) == (outcome != "undecided")
    assert "overfitting" in diagnose(case(scores=(80.0, 78.0))).verdict


def test_healthy_never_stands_alone_beside_a_training_that_made_it_worse() -> None:
    judged = Judgement("worse", "training made the model worse: dev was 80.00 and 78.00", {})
    found = diagnose(replace(case(scores=(80.0, 79.0)), judgement=judged))
    assert found.verdict == (HEALTHY,)
    lines = str(found).splitlines()
    assert lines[0] == "verdict: healthy; outcome: worse"
    assert lines[2] == judged.sentence
    assert json.loads(found.to_json())["judgement"]["outcome"] == "worse"


def test_a_score_before_training_is_one_of_step_0() -> None:
    """An evaluation after each epoch does not show how good the model was before."""
    fallen = case(scores=(80.0, 78.0, 75.0))
    later = replace(fallen, scores=[(step + 10, score) for step, score in fallen.scores])
    sentence = "No score was above the score before training."
    before, after = (diagnose(run).findings[0] for run in (fallen, later))
    assert sentence in before.detail
    assert "--learning-rate" in before.change
    assert sentence not in after.detail
    assert after.change == "--max-steps 10"
    known = [(0, 80.0), (10, 80.5)]
    rises = {0: known, 1: known[:1], 2: known[1:], 3: [(10, 80.5), (20, 90.5)]}
    gains = {i: gain_in_score(replace(fallen, scores=scores)) for i, scores in rises.items()}
    assert gains == {0: 0.5, 1: None, 2: None, 3: 10.0}


DONE: dict[str, Any] = {"start": {"dead": 0.8}, "dead": 0.875, "scores": (86.7, 86.6)}
"""all-MiniLM-L6-v2 on pairs of STS-B that people rated 4 or more."""


def test_anchors_done_before_training_are_nothing_left_to_learn() -> None:
    found = diagnose(case(**DONE))
    assert found.verdict == ("nothing-left-to-learn",)
    (finding,) = found.findings
    assert "your data with hard negatives as a third column, or other data" in finding.change
    done = "   - gradient dissipation (GD) below 0.01 at the first logged step"
    assert f"{done}: 80% of the anchors (a fault if above 50%)" in str(found).splitlines()
    # more of them do not change the name, nor does the other finding come besides
    assert diagnose(case(**{**DONE, "dead": 1.0})).verdict == ("nothing-left-to-learn",)
    assert diagnose(case(**{**DONE, "dead": 1.0, "scores": ()})).verdict == (
        "nothing-left-to-learn",
    )


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"scores": (86.7, 88.0)}, HEALTHY),  # it has gained
        ({"scores": ()}, HEALTHY),  # whether it has is not known, and an eighth is not done
        ({"dead": 0.7}, HEALTHY),
        ({"start": {"dead": 0.4}}, HEALTHY),
        # training brought them there, not the data
        ({"start": {"dead": 0.4}, "dead": 0.95}, "dissipated-early"),
    ],
)
def test_what_is_not_nothing_left_to_learn(changed: dict[str, Any], verdict: str) -> None:
    assert diagnose(case(**{**DONE, **changed})).verdict == (verdict,)


def test_a_log_of_a_resumed_training_does_not_show_its_start() -> None:
    done = case(**DONE)
    resumed = replace(done, rows=[{**row, "step": row["step"] + 150} for row in done.rows])
    assert diagnose(resumed).verdict == (HEALTHY,)


@pytest.mark.parametrize(("first", "every"), [(1, 2), (10, 10), (7, 50)])
def test_a_log_that_begins_within_an_interval_shows_its_start(first: int, every: int) -> None:
    """The second of two losses of a loop; a log whose step 0 half precision skipped."""
    done = case(**DONE)
    rows = [{**row, "step": first + every * i} for i, row in enumerate(done.rows)]
    assert diagnose(replace(done, rows=rows)).verdict == ("nothing-left-to-learn",)


def test_a_measured_improvement_leaves_nothing_to_say() -> None:
    improved = Judgement("improved", "training improved it", {})
    assert diagnose(replace(case(**DONE), judgement=improved)).verdict == (HEALTHY,)


@pytest.mark.parametrize(
    ("given", "verdict", "change"),
    [
        (
            {"start": {"positive_mean": 0.0}, "positive_mean": 0.0, "dead": 1.0},
            "dead-views",
            "--dropout 0.1",
        ),
        (
            {
                "start": {"positive_mean": 1.39},
                "positive_mean": 0.31,
                "negative_mean": 0.31,
                "uniformity": -0.001,
                "std": 0.001,
                "loss": 4.16,
            },
            "unrelated-positives",
            "--columns",
        ),
        (
            {"std": 0.01, "loss": 4.16, "uniformity": -0.001},
            "diverging",
            "--learning-rate 3e-06",
        ),
        ({"norm": 10.0}, "diverging", "--learning-rate 3e-06"),
        ({"kind": "images", "norm": 160.0}, "diverging", "--learning-rate 3e-06"),
        (
            {"start": {"uniformity": -0.001}, "uniformity": -0.001, "effective_rank": 1.0},
            "collapsed",
            "--encoder",
        ),
        (
            {"kind": "images", "settings": {"weight-decay": 0.05}, "uniformity": -0.001},
            "collapsed",
            "--weight-decay 5e-4",
        ),
        (
            {
                "objective": "negativecosine",
                "kind": "images",
                "settings": {"method": "simclr"},
                "uniformity": -0.001,
            },
            "collapsed",
            "--method byol",
        ),
        (
            {"objective": "mpt", "dissipation": 1.0, "uniformity": -0.001},
            "collapsed",
            "--objective infonce",
        ),
        ({"uniformity": -0.001}, "collapsed", "--learning-rate"),
        (
            {"start": {"effective_rank": 2.0}, "effective_rank": 2.0},
            "dimensional-collapse",
            "--encoder",
        ),
        (
            {"objective": "vicreg", "parameters": {"cov_coeff": 0.0}, "effective_rank": 2.0},
            "dimensional-collapse",
            "--objective.cov_coeff 1",
        ),
        ({"effective_rank": 2.0}, "dimensional-collapse", "--objective vicreg"),
        (
            {"objective": "mpt", "effective_rank": 2.0},
            "dimensional-collapse",
            "--objective infonce",
        ),
        (
            {"kind": "images", "settings": {"weight-decay": 0.05}, "effective_rank": 2.0},
            "dimensional-collapse",
            "--weight-decay 5e-4",
        ),
        (
            {"kind": "images", "effective_rank": 2.0},
            "dimensional-collapse",
            "--method vicreg",
        ),
        (
            {"start": {"norm": 300.0}, "norm": 300.0, "settings": {"head": "none"}},
            "norms-too-large",
            "--head mlp",
        ),
        (
            {
                "start": {"norm": 300.0},
                "norm": 300.0,
                "kind": "images",
                "settings": {"method": "byol"},
            },
            "norms-too-large",
            "--cut 9",
        ),
        (
            {"kind": "images", "settings": {"weight-decay": 0.0}, "norm": 9.0},
            "norms-too-large",
            "--weight-decay 5e-4",
        ),
        (
            {"kind": "images", "details": {"plan": {"weight_decay": 0.0}}, "norm": 9.0},
            "norms-too-large",
            "--weight-decay 5e-4",
        ),
        (
            {"parameters": {"temperature": 3.0}, "hardest_share": 0.02, "dissipation": 0.999},
            "negatives-not-hard",
            "--objective.temperature 0.05",
        ),
        (
            {
                "objective": "barlowtwins",
                "parameters": {"weight": "softmax:3", "dissipation": "margin:0.3"},
                "hardest_share": 0.02,
            },
            "negatives-not-hard",
            "--objective.weight softmax:0.05",
        ),
        ({"false_negatives": 0.5}, "false-negatives", "train on a file without these copies"),
        (
            {"probe": {"copies": 0.5, "mean_cosine": 0.1}},
            "false-negatives",
            "train on a file without these copies",
        ),
        (
            {"objective": "mpt", "parameters": {"margin": 2.0}, "dissipation": 1.0},
            "never-dissipating",
            "--objective.margin 0.23",
        ),
        (
            {"objective": "barlowtwins", "dissipation": 1.0},
            "never-dissipating",
            "--objective modifiedbarlowtwins",
        ),
        ({"objective": "dcl", "dissipation": 1.0}, "never-dissipating", "--objective dclplus"),
        (
            {"objective": "miov2", "dissipation": 1.0},
            "never-dissipating",
            "--objective.dissipation margin:0.3",
        ),
        (
            {"dead": 1.0, "dissipation": 0.0, "scores": (80.0, 80.3)},
            "dissipated-early",
            "--objective.temperature 0.1",
        ),
        (
            {"objective": "met", "dead": 1.0, "dissipation": 0.0, "scores": ()},
            "dissipated-early",
            "--objective.margin 0.675",
        ),
        (
            {"start": {"negative_mean": None}, "negative_mean": None, "std": 0.0, "dead": None},
            "no-negatives",
            "--batch-size 64",
        ),
        ({"above_bound": 0.1}, "losing-pull", "--objective.ratio 1.5"),
        (
            {
                "start": {"hardest_share": 0.98, "dead": 0.6},
                "parameters": {"temperature": 0.004},
                "scores": (80.0, 80.5),
            },
            "temperature-too-low",
            "--objective.temperature 0.05",
        ),
        ({"start": {"label_gap": -1.5}}, "unrelated-positives", "--columns"),
        (
            {"start": {"label_gap": 1.6}, "label_gap": 0.4, "loss": 3.5},
            "diverging",
            "--learning-rate 3e-06",
        ),
        (
            {"uniformity": -0.5, "probe": {"mean_cosine": 0.9}},
            "anisotropic-start",
            "--learning-rate 0.0003",
        ),
        (
            {"objective": "mpt", "uniformity": -0.5, "probe": {"mean_cosine": 0.9}},
            "anisotropic-start",
            "--objective infonce",
        ),
        ({"scores": (80.0, 84.0, 81.0)}, "overfitting", "--max-steps 100"),
        ({"scores": (80.0, 76.0)}, "overfitting", "--learning-rate 1e-05"),
    ],
)
def test_what_is_wrong_is_named_first(given: dict[str, Any], verdict: str, change: str) -> None:
    found = diagnose(case(**given))
    assert first(found)[0] == verdict
    assert first(found)[1].startswith(change)
    finding = found.findings[0]
    decided = finding.evidence[0]
    assert decided.name in THRESHOLDS
    assert THRESHOLDS[decided.name].crossed_by(decided.number)
    assert finding.source
    assert finding.detail.endswith((".", "?"))


SHARP: dict[str, Any] = {"start": {"hardest_share": 0.98, "dead": 0.6}, "scores": (80.0, 80.5)}
NEVER: dict[str, Any] = {"dissipation": 1.0}
DONE_EARLY: dict[str, Any] = {"dead": 1.0, "dissipation": 0.0, "scores": (80.0, 80.3)}


@pytest.mark.parametrize(
    ("objective", "parameters", "given", "verdict", "change"),
    [
        ("met", {"margin": 2, "symmetric": True}, NEVER, "never-dissipating", "margin 0.45"),
        ("met", {"margin": 2, "ratio": 1.5}, NEVER, "never-dissipating", "margin 0.45"),
        (
            *("mpt", {"dissipation": "margin:2", "symmetric": True}, NEVER, "never-dissipating"),
            "dissipation margin:0.3:dot",
        ),
        (
            *("barlowtwins", {"weight": "softmax:0.001"}, SHARP, "temperature-too-low"),
            "weight softmax:0.05:cross:row",
        ),
        ("infonce", {"temperature": 0.001}, SHARP, "temperature-too-low", "temperature 0.05"),
        (
            *("infonce", {"weight": "softmax:3:both:batch"}, {"hardest_share": 0.02}),
            *("negatives-not-hard", "weight softmax:0.05:both:batch"),
        ),
        (
            *("infonce", {"dissipation": "margin:0.2:angle"}, DONE_EARLY, "dissipated-early"),
            "dissipation margin:0.3:angle",
        ),
        (
            *("infonce", {"ratio": 1.5, "symmetric": True}, DONE_EARLY, "dissipated-early"),
            "temperature 0.1",
        ),
    ],
)
def test_a_proposed_flag_sets_the_component_that_decides(
    objective: str, parameters: dict[str, Any], given: dict[str, Any], verdict: str, change: str
) -> None:
    found = diagnose(case(objective=objective, parameters=parameters, **given))
    assert first(found) == (verdict, f"--objective.{change}")
    name, value = change.split()
    changed = {**parameters, name: value}
    assert registry.build(objective, changed) != registry.build(objective, parameters)


def test_weights_that_are_no_softmax_have_no_temperature() -> None:
    found = diagnose(case(parameters={"weight": "hardest"}, hardest_share=0.02))
    assert "negatives-not-hard" not in found.verdict


@pytest.mark.parametrize(("kind", "usual"), [("text", "0.05"), ("images", "0.1")])
def test_the_usual_temperature_depends_on_the_inputs(kind: Any, usual: str) -> None:
    high = case(kind=kind, parameters={"temperature": 3.0}, hardest_share=0.02)
    low = case(kind=kind, parameters={"temperature": 0.001}, **SHARP)
    for run in (high, low):
        assert first(diagnose(run))[1] == f"--objective.temperature {usual}"
        in_a_loop = replace(run, settings={**run.settings, "trainer": "a loop"})
        assert f"temperature of {usual} (now" in first(diagnose(in_a_loop))[1]


def test_the_usual_margin_in_the_words_of_a_trainer() -> None:
    settings = {"trainer": "a loop"}
    for extra in ({}, {"symmetric": True}, {"ratio": 1.5}):
        run = case(objective="met", parameters={"margin": 2, **extra}, settings=settings, **NEVER)
        assert first(diagnose(run)) == ("never-dissipating", "a margin of 0.45 (now 2)")


@pytest.mark.parametrize(
    "given",
    [
        # an untrained encoder of images does not tell crops apart yet
        {"kind": "images", "start": {"positive_mean": 1.4}},
        # two images may look alike
        {"kind": "images", "false_negatives": 0.9},
        # Li et al. 2024 is about sentences; on images these are the rule
        {"kind": "images", "objective": "barlowtwins", "dissipation": 1.0},
        # 1 on hard batches, but not on an ideal one
        {"dissipation": 1.0},
        # all done, and better for it
        {"dead": 1.0, "dissipation": 0.0, "scores": (63.0, 75.0)},
        # trained away
        {"probe": {"mean_cosine": 0.9, "copies": 0.0}},
        # not normalised: norms are the objective's own business
        {"kind": "images", "objective": "vicreg", "parameters": {"space": "raw"}, "norm": 900.0,
         "start": {"norm": 900.0}},
        # held by its decay
        {"kind": "images", "settings": {"weight-decay": 5e-4}, "norm": 9.0},
        # text encoders are not trained from scratch for long enough for it to matter
        {"settings": {"weight-decay": 0.0}, "start": {"norm": 9.0}, "norm": 9.0},
        # small weights grow fast, and that is what they are for
        {"kind": "images", "settings": {"cut": 9.0}, "start": {"norm": 0.1}, "norm": 8.0},
        # near each other, as early in a training, embeddings get alike weights at any temperature
        {"kind": "images", "uniformity": -0.4, "hardest_share": 1 / 63},
        # cut weights of text, too
        {"settings": {"cut": 9.0}, "start": {"norm": 0.1}, "norm": 2.0},
        # weights that know no temperature
        {"objective": "modifiedmhs", "hardest_share": 0.017},
        # labelled pairs are told apart less well in a batch, but the loss falls
        {"start": {"label_gap": 1.6}, "label_gap": 0.4},
        {"scores": (80.0, 84.0, 83.0)},
        {"kind": "images", "scores": (60.0, 70.0, 66.0)},
    ],
)  # fmt: skip
def test_what_only_looks_wrong_is_healthy(given: dict[str, Any]) -> None:
    assert diagnose(case(**given)).verdict == (HEALTHY,)


def test_a_queue_has_its_own_number_of_negatives() -> None:
    queue = {"method": {"options": {"queue": 4096, "dimension": 128}}}
    share = {"hardest_share": 0.001, "kind": "images"}
    found = diagnose(case(**share, details=queue))
    assert found.verdict == (HEALTHY,)
    assert diagnose(case(**share)).verdict == ("negatives-not-hard",)


def test_steps_of_a_loss_of_pairs_do_not_count_as_negatives_of_another_loss() -> None:
    """A softmax over 31 negatives and a loss of pairs take turns."""
    softmax = {**SOUND, "negatives": 31.0, "hardest_share": 0.08}
    pairs = {**SOUND, "negatives": 0.0, "hardest_share": None, "dissipation": None, "dead": None}
    rows = [{**(pairs if step % 2 else softmax), "step": step} for step in range(12)]
    found = diagnose(RunEvidence(rows=rows))
    assert found.verdict == (HEALTHY,)
    times = {number.name: number for number in found.numbers}["hardest_times_uniform"]
    assert times.number == pytest.approx(31 * 0.08)
    assert times.threshold == 1.43  # the limit for 62 negatives is 1.5


@pytest.mark.parametrize("count", [2, 15, 31, 62, 200])
def test_the_push_on_the_hardest_negative_is_at_most_all_of_it(count: int) -> None:
    """The limit, not the number, is converted from 62 negatives to fewer."""
    even = {"hardest_times_uniform", "hardest_at_high_temperature"}
    for share in (1.0, 1.05 / count):
        rows = case(negatives=float(count), hardest_share=share).rows
        found = diagnose(RunEvidence(rows=rows))
        numbers = [*found.numbers, *(n for f in found.findings for n in f.evidence)]
        (number,) = (n for n in numbers if n.name in even)
        assert number.number == pytest.approx(count * share)
        assert (number.threshold == 1.5) == (count >= 62)
        assert (number.number < (number.threshold or 0)) == (not found.healthy)


def test_a_training_whose_rate_is_0_is_not_healthy() -> None:
    settings = {"batch-size": 64, "trainer": "lightning"}
    verdicts = []
    for later in (0.0, 1e-5):  # a warmup begins at 0
        rows = [{**row, "learning_rate": later if i else 0.0} for i, row in enumerate(case().rows)]
        losses = ({"name": "InfoNCE", "family": "softmax"},)
        found = diagnose(RunEvidence("text", rows, settings=settings, losses=losses))
        verdicts.append(found.verdict)
        if not later:
            (finding,) = found.findings
            assert "The learning rate was 0" in finding.detail
            assert finding.change == "a learning rate of 2e-05 (now 0)"
    assert verdicts == [("not-examined",), (HEALTHY,)]


def test_of_one_negative_none_is_harder() -> None:
    """The hardest of one has all of the push at any temperature."""
    rows = case(negatives=1.0, hardest_share=1.0, start={"negatives": 1.0}).rows
    found = diagnose(RunEvidence(rows=rows))
    assert found.verdict == (HEALTHY,)
    assert "hardest_times_uniform" not in {number.name for number in found.numbers}


def test_a_loop_of_ones_own_has_no_objective_of_ours() -> None:
    rows = case(hardest_share=0.02, dissipation=1.0).rows
    found = diagnose(RunEvidence(rows=rows, settings={"batch-size": 64}))
    assert found.verdict == ("negatives-not-hard",)
    assert "If the loss has a temperature" in found.findings[0].detail
    assert diagnose(RunEvidence(rows=rows)).verdict == (HEALTHY,)
    alike = case(false_negatives=0.9).rows
    assert diagnose(RunEvidence(rows=alike)).verdict == ("false-negatives",)
    assert diagnose(RunEvidence(rows=alike, kind="images")).verdict == (HEALTHY,)


def test_a_loss_of_ones_own_that_stops_pulling_at_a_margin_is_not_losing() -> None:
    given = case(above_bound=0.1, start={"ratio": 0.0}, ratio=0.0)
    assert diagnose(given).verdict == ("losing-pull",)
    assert diagnose(replace(given, objective=None)).verdict == (HEALTHY,)


@pytest.mark.parametrize(("start", "verdict"), [(300.0, "norms-too-large"), (3.0, "diverging")])
def test_embeddings_of_dot_products_may_be_long(start: float, verdict: str) -> None:
    for radial, expected in ((0.0, verdict), (0.5, HEALTHY)):
        norm = max(300.0, start)
        given = case(start={"norm": start, "radial": radial}, norm=norm, radial=radial)
        assert diagnose(replace(given, objective=None)).verdict[0] == expected


@pytest.mark.parametrize(("start", "verdict"), [(300.0, HEALTHY), (150.0, "norms-too-large")])
def test_long_embeddings_of_a_last_norm_layer_are_no_fault(start: float, verdict: str) -> None:
    given = case(start={"norm": start, "radial": 0.0}, norm=300.0, radial=0.0)
    losses = ({"name": "InfoNCE", "family": "softmax"},)
    assert diagnose(replace(given, objective=None, losses=losses)).verdict == (verdict,)


@pytest.mark.parametrize(
    "changed",
    [
        {"scores": (80.0, 83.0)},  # it gains
        {"parameters": {"temperature": 0.02}},  # a usual temperature of cosines
        {"settings": {"batch-size": 2}},  # the hardest of one has all of the push
        {"objective": "mhs", "parameters": {}},  # which has no temperature
        {"start": {"hardest_share": 0.5, "dead": 0.6}},
    ],
)
def test_what_is_no_temperature_too_low(changed: dict[str, Any]) -> None:
    given = {
        "start": {"hardest_share": 0.98, "dead": 0.6},
        "parameters": {"temperature": 0.004},
        "scores": (80.0, 80.5),
    }
    assert "temperature-too-low" in diagnose(case(**given)).verdict  # type: ignore[arg-type]
    assert "temperature-too-low" not in diagnose(case(**{**given, **changed})).verdict  # type: ignore[arg-type]


APART: dict[str, Any] = {
    "start": {"positive_mean": 0.5, "negative_mean": 0.6},
    "positive_mean": 0.7,
    "negative_mean": 1.3,
}
"""Similarities of positives and of negatives fall."""


def test_both_similarities_fall_while_embeddings_spread_out() -> None:
    found = diagnose(case(**APART))
    assert found.verdict == (HEALTHY, "spreading")
    assert found.healthy
    assert not found.findings
    record = json.loads(found.to_json())
    assert record["findings"] == []
    assert record["remarks"][0]["change"] == "none"
    assert "1. spreading: healthy: similarities to positives and negatives fall" in str(found)
    # the same where the pull is too weak, and where positives fall further than negatives
    assert diagnose(case(**APART, above_bound=0.1)).verdict == ("losing-pull",)
    assert diagnose(case(**{**APART, "negative_mean": 0.65})).verdict == (HEALTHY,)


def test_a_pull_under_the_bound_that_brings_positives_closer_is_not_losing() -> None:
    closer = {"start": {"positive_mean": 0.9}, "above_bound": 0.1}
    assert diagnose(case(**closer)).verdict == (HEALTHY,)  # type: ignore[arg-type]


def test_pairs_whose_separation_is_unknown_have_lost_nothing() -> None:
    """Labels of classes that are mixed up also move embeddings together."""
    first = {"positive_mean": None, "negative_mean": None, "temperature": 0.05}
    rows = [{**SOUND, **first, "step": i, "std": 1.0 if i == 0 else 0.5} for i in range(12)]
    rows = [{**row, "loss": 2.0} for row in rows]
    assert "diverging" not in diagnose(RunEvidence(rows=rows)).verdict


def test_pairs_with_one_label_are_only_pulled() -> None:
    given = replace(case(pulled=1.0, uniformity=-0.001), objective=None)
    assert diagnose(given).verdict == ("only-pulled",)
    # labels differ: those that belong apart are done
    given = replace(case(start={"label_gap": 2.0}, pulled=1.0), objective=None)
    assert diagnose(given).verdict == (HEALTHY,)
    # batches of one pair, of which every third is pushed
    given = replace(case(pulled=1.0), objective=None)
    rows = [{**row, "pulled": float(i % 3 > 0)} for i, row in enumerate(given.rows)]
    assert diagnose(replace(given, rows=rows)).verdict == (HEALTHY,)


@pytest.mark.parametrize(
    ("uniformity", "verdict"), [(-3.0, "not-examined"), (-0.001, "only-pulled")]
)
def test_a_margin_may_leave_the_other_pairs_alone(uniformity: float, verdict: str) -> None:
    """Pairs that are far apart may be beyond a margin; pairs at one point are not."""
    given = case(pulled=1.0, negatives=28.0, uniformity=uniformity)
    losses = ({"name": "the loss", "family": "pairs"},)
    assert diagnose(replace(given, objective=None, losses=losses)).verdict == (verdict,)


def test_a_loss_that_picks_its_negatives_and_is_done_has_negatives() -> None:
    done = {"negative_mean": None, "embedding_gradient": 0.0, "loss": 0.0}
    for negatives, verdict in ((0.0, "no-negatives"), (28.0, HEALTHY)):
        rows = [{**SOUND, **done, "step": step, "negatives": negatives} for step in range(9)]
        assert diagnose(RunEvidence(rows=rows)).verdict[0] == verdict


def test_an_objective_that_pushes_nothing_needs_no_negatives() -> None:
    given = case(start={"negative_mean": None}, negative_mean=None, objective="negativecosine")
    assert "no-negatives" not in diagnose(given).verdict


def test_the_other_view_doubles_the_negatives() -> None:
    found = diagnose(case(objective="ntxent", hardest_share=0.011, kind="images"))
    (finding,) = found.findings
    assert finding.evidence[0].number == pytest.approx(126 * 0.011)


def test_what_a_finding_explains_is_not_told_again() -> None:
    symptoms = {
        "hardest_share": 1 / 63,
        "dissipation": 1.0,
        "above_bound": 0.1,
        "effective_rank": 1.0,
    }
    found = diagnose(case(uniformity=-0.001, scores=(80.0, 10.0), **symptoms))
    assert found.verdict == ("collapsed",)


def test_findings_that_explain_nothing_of_each_other_are_all_told() -> None:
    found = diagnose(case(above_bound=0.1, scores=(80.0, 70.0), false_negatives=0.9))
    assert found.verdict == ("false-negatives", "losing-pull", "overfitting")


def test_a_model_is_judged_by_its_probe() -> None:
    probe = {**SOUND, "count": 256.0, "dimension": 384.0, "mean_cosine": 0.1, "copies": 0.0}
    assert diagnose(RunEvidence(kind="text", probe=probe)).verdict == (HEALTHY,)
    for change, verdict in (
        ({"uniformity": -0.001}, "collapsed"),
        ({"effective_rank": 3.0}, "dimensional-collapse"),
        ({"norm": 500.0}, "norms-too-large"),
        ({"mean_cosine": 0.8}, "anisotropic-start"),
        ({"copies": 0.6}, "false-negatives"),
        ({"positive_mean": 1.39}, "unrelated-positives"),
    ):
        assert diagnose(RunEvidence(kind="text", probe={**probe, **change})).verdict == (verdict,)


def test_equal_views_of_a_model_matter_where_there_is_an_objective() -> None:
    probe = {**SOUND, "positive_mean": 0.0, "mean_cosine": 0.1, "copies": 0.0, "count": 256.0}
    infonce = registry.build("infonce")
    assert diagnose(RunEvidence(kind="text", probe=probe)).verdict == (HEALTHY,)
    assert diagnose(RunEvidence(probe=probe, objective=infonce)).verdict == ("dead-views",)


def test_one_batch_speaks_against_unrelated_positives_only_where_it_is_clear() -> None:
    near = {"positive_mean": 1.38}
    probe = {**SOUND, **near, "mean_cosine": 0.1, "copies": 0.0}
    assert diagnose(replace(case(), probe=probe)).verdict == (HEALTHY,)
    mixed = replace(case(start=near), probe=probe)
    assert diagnose(mixed).verdict == ("unrelated-positives",)
    begun = replace(mixed, start={**probe, "positive_mean": 0.7})
    assert diagnose(begun).verdict == (HEALTHY,)


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ({"dead": 1.0, "dissipation": 0.0, "scores": ()}, {"positive_mean": "rad"}),
        ({"parameters": {"temperature": 3.0}, "hardest_share": 0.02}, {"hardest_share": ""}),
    ],
)
def test_numbers_without_a_threshold_have_words_and_a_unit(numbers: Any, shown: Any) -> None:
    (finding,) = diagnose(case(**numbers)).findings
    evidence = {number.name: number for number in finding.evidence}
    for name, unit in shown.items():
        (metric,) = (metric for metric in METRICS if metric.column == name)
        assert metric.definition.startswith(evidence[name].words)
        assert evidence[name].unit == unit


def test_a_diagnosis_is_read_from_the_top() -> None:
    found = replace(diagnose(case(dead=1.0, dissipation=0.0, scores=())), notes=("10 steps", "x"))
    lines = str(found).splitlines()
    assert lines[0] == "verdict: dissipated-early"
    assert lines[2] == f"1. dissipated-early: {VERDICTS['dissipated-early'].title}"
    done = "   - gradient dissipation (GD) below 0.01"
    assert f"{done}: 100% of the anchors (a fault if above 90%)" in lines
    assert "   change: --objective.temperature 0.1" in lines
    assert lines[-1] == "examined: 10 steps; x"
    assert max(map(len, lines)) <= 96
    missed = f"{MISSED}the model, so use `--data FILE`"
    lines = str(replace(found, notes=("10 steps", missed, "x"))).splitlines()
    assert lines[2] == missed
    assert lines[-1] == "examined: 10 steps; x"


def test_json_has_no_infinities() -> None:
    finding = replace(
        diagnose(case(above_bound=0.1)).findings[0], evidence=(Evidence("x", float("inf")),)
    )
    record = json.loads(Diagnosis((finding,)).to_json())
    assert record["verdict"] == ["losing-pull"]
    assert record["findings"][0]["evidence"] == [
        {"name": "x", "number": None, "threshold": None, "unit": "", "side": "", "label": ""}
    ]


def test_json_is_read_back() -> None:
    judged = Judgement("improved", "It is better.", {"best": {"low": 1.0}})
    for diagnosis in (
        diagnose(case(above_bound=0.1, uniformity=float("nan"))),
        replace(diagnose(case()), judgement=judged, losses=({"name": "x"},)),
        replace(diagnose(case()), losses=({"name": "x"}, {"name": "y"}), model={"a": 1}),
    ):
        assert Diagnosis.from_json(diagnosis.to_json()).to_json() == diagnosis.to_json()
        assert Diagnosis.from_json(diagnosis.to_json()).verdict == diagnosis.verdict
        partial = replace(diagnosis, notes=("10 steps", "the saved model could not be measured"))
        assert Diagnosis.from_json(partial.to_json()).notes == partial.notes
        older = json.loads(partial.to_json())
        del older["notes"]
        assert Diagnosis.from_json(json.dumps(older)).notes == ()


def test_every_verdict_can_be_decided_and_every_consequence_is_one() -> None:
    for slug, verdict in VERDICTS.items():
        by_numbers = any(t.measure is not None for t in verdict.thresholds)
        assert (verdict.when is not None) != by_numbers or slug == HEALTHY, slug
        assert {*verdict.explains} <= {*VERDICTS}
        later = [*VERDICTS][[*VERDICTS].index(slug) :]
        assert {*verdict.explains} <= {*later}, "a cause comes before its effects"


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 1e308])
def test_a_log_of_numbers_that_are_none_is_no_healthy_one(broken: float) -> None:
    found = diagnose(case(uniformity=broken, loss=broken))
    assert found.verdict == ("diverging",)
    assert found.findings[0].evidence[0] == compared("rows_not_finite", 9)
    assert found.findings[0].change == "--learning-rate 3e-06"
    assert "overflowed" in found.findings[0].detail
    assert not re.search(r": -?(inf|Infinity|NaN)", found.to_json())


def test_what_was_not_looked_at_is_not_healthy() -> None:
    assert diagnose(RunEvidence()).verdict == ("not-enough-seen",)
    for rows in ([], [{"step": 0.0, **SOUND}], [{"step": 0.0}, {"step": 10.0, "loss": 2.0}]):
        found = diagnose(RunEvidence(rows=rows))
        assert found.verdict == ("not-enough-seen",)
    stopped = diagnose(RunEvidence(settings={"log-every": 1}, resumable=True)).findings[0]
    assert stopped.change.startswith("--resume (the training has not ended")
    timed = RunEvidence(settings={"log-every": 1, "minutes": 4.0})
    short = diagnose(replace(timed, details={"time": {"enough": 95}})).findings[0]
    assert short.change == "--minutes 95 (more time, then diagnose again)"
    in_time = diagnose(replace(timed, details={"time": {"enough": None}})).findings[0]
    assert "--minutes" not in in_time.change
    course = [{"step": i, **SOUND} for i in range(3)]
    assert diagnose(RunEvidence(rows=course)).verdict == (HEALTHY,)
    assert "- logged steps: 3 (a fault if below 3)" in str(diagnose(RunEvidence(rows=course)))
    two = replace(RunEvidence(rows=course[:2]), probe={"uniformity": -3.0, "mean_cosine": 0.1})
    assert diagnose(two).verdict == ("not-enough-seen",)
    assert diagnose(
        RunEvidence(kind="text", probe={"uniformity": -3.0, "mean_cosine": 0.1})
    ).verdict == (HEALTHY,)
    dead = {**SOUND, "positive_mean": 0.0}
    assert diagnose(RunEvidence(rows=[{"step": 0.0, **dead}])).verdict == ("dead-views",)


def test_embeddings_of_zeros_are_collapsed() -> None:
    zeros = {"std": 0.0, "effective_rank": 0.0, "norm": 0.0, "uniformity": -4.0}
    angles = {"positive_mean": 1.5708, "negative_mean": 1.5708, "negative_std": 0.0}
    found = diagnose(case(start={**zeros, **angles}, **zeros, **angles, positive_std=0.0))
    assert found.verdict[0] == "collapsed"
    assert found.findings[0].evidence[0].name == "collapse_std"


THROWN_TOGETHER = {
    "loss": 5.0,
    "std": 0.008,
    "uniformity": -0.1,
    "positive_mean": 0.19,
    "positive_std": 0.042,
    "negative_mean": 0.215,
    "negative_std": 0.06,
    "dissipation": 1.0,
    "dead": 0.0,
}
"""As a triplet loss of cosines with a margin of 5 ends at a high learning rate."""


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "diverging"),
        # a fifth of every angle: positives are as far ahead as before
        (
            {
                "positive_mean": 0.14,
                "positive_std": 0.02,
                "negative_mean": 0.28,
                "negative_std": 0.03,
            },
            HEALTHY,
        ),
        ({"std": 0.05}, HEALTHY),
    ],
)
def test_what_is_thrown_together_and_told_apart_no_more(
    changed: dict[str, float], verdict: str
) -> None:
    given = case(start={"loss": 5.07}, **{**THROWN_TOGETHER, **changed})
    found = diagnose(replace(given, objective=None))
    assert found.verdict[0] == verdict
    if not changed:
        names = [evidence.name for evidence in found.findings[0].evidence[:2]]
        assert names == ["lost_gap", "lost_spread_at_the_end"]


def test_a_batch_of_eight_is_enough_for_a_temperature_that_is_too_low() -> None:
    """Two layers of all-MiniLM-L6-v2 at a temperature of 0.002, in the default batch of 8."""
    start = {"hardest_share": 0.93, "dead": 0.63, "temperature": 0.002}
    given = replace(case(start=start, settings={"batch-size": 8}, **start), objective=None)
    found = diagnose(replace(given, scores=(), words=Words(temperature="--temperature {}")))
    assert found.verdict[0] == "temperature-too-low"


def test_a_loss_that_pushes_takes_nothing_together() -> None:
    """Two layers of all-MiniLM-L6-v2 at 100 times their learning rate, in twelve steps of 16."""
    first = {"loss": 2.297, "std": 0.028, "positive_mean": 0.808, "positive_std": 0.08}
    first |= {"negative_mean": 0.873, "negative_std": 0.085, "temperature": 0.05}
    end = {"loss": 2.645, "std": 0.016, "positive_mean": 0.36, "positive_std": 0.12}
    end |= {"negative_mean": 0.445, "negative_std": 0.211, "temperature": 0.05}
    given = replace(case(start=first, **end), objective=None, scores=())
    assert diagnose(given).verdict[0] == "diverging"
    fell = replace(case(start={**first, "loss": 3.0}, **end), objective=None, scores=())
    assert "diverging" not in diagnose(fell).verdict


@pytest.mark.parametrize(("first", "end"), [(2.75, 2.72), (3.87, 2.6)])
def test_a_hard_first_batch_hides_no_destroyed_encoder(first: float, end: float) -> None:
    """The loss is about that of guessing among 16 texts, and the embeddings moved together."""
    batch = {"temperature": 0.05, "negatives": 15.0, "positive_std": 0.08, "negative_std": 0.08}
    start = {**batch, "loss": first, "std": 0.027, "positive_mean": 0.8, "negative_mean": 0.84}
    shrunk = {**batch, "loss": end, "std": 0.011, "positive_mean": 0.3, "negative_mean": 0.33}
    given = replace(case(start=start, **shrunk), objective=None, scores=())
    assert diagnose(given).verdict[0] == "diverging"
    # random weights know no pairs, so there is nothing to destroy
    start["positive_mean"] = start["negative_mean"]
    given = replace(case(start=start, **shrunk), objective=None, scores=())
    assert "diverging" not in diagnose(given).verdict


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        # shuffled pairs of texts in batches of 8, of which one differs from the next by 0.3
        ([-0.54, 0.34, -0.02, 0.48, 0.02, -0.5, 0.2, -0.36, -0.01, -0.4, -0.15, 0.14], "unrelated"),
        ([0.14, 0.4, 0.24, -0.2, 0.07, 0.17, 0.18, -0.22, 0.17, 0.47, 0.07, 0.17], "unrelated"),
        # neither these nor sound ones for certain
        ([0.0, 0.3, 0.3, 0.1, 0.27, 0.27, 0.28, -0.12, 0.27, 0.57, 0.17, 0.27], "not-examined"),
        # sound ones
        ([1.08, 0.8, 0.61, 1.69, 1.43, 1.06, 0.69, 0.69, 1.31, 1.02, 0.8, 0.8], HEALTHY),
        # a learning rate that is too high: only the first steps count
        ([0.66, -0.32, -0.14, 0.35, 0.56, 0.83, 0.17, 0.37, 0.4, 0.07, -0.26, -0.25], "diverging"),
    ],
)
def test_small_batches_are_judged_by_all_steps_of_the_first_epoch(
    leads: list[float], verdict: str
) -> None:
    rows = []
    for step, lead in enumerate(leads):
        angles = {"positive_mean": 0.8 - 0.1 * lead, "negative_mean": 0.8, "negative_std": 0.1}
        row = {**SOUND, **angles, "step": step, "epoch": step / 50, "negatives": 7.0}
        row |= {"temperature": 0.05, "radial": 0.0, "false_negatives": 0.0}
        if verdict == "diverging" and step:
            row |= {"std": 0.02, "loss": 2.1}
        rows.append(row)
    found = diagnose(RunEvidence(rows=rows, losses=({"name": "the loss", "family": "softmax"},)))
    assert found.verdict[0].startswith(verdict)


def test_a_sum_of_cosines_has_a_temperature_of_its_own() -> None:
    """A score of late interaction sums a cosine for each token of the query."""
    batch = {**SOUND, "temperature": 0.02, "hardest_share": 0.9, "negatives": 7.0, "radial": 0.12}
    rows = [{**batch, "step": step} for step in range(12)]
    losses = ({"name": "Contrastive", "family": "softmax", "temperature": 0.02},)
    late = {"summed": 16.0, "trainer": "loop"}
    assert diagnose(RunEvidence(rows=rows, losses=losses)).verdict == (HEALTHY,)
    found = diagnose(RunEvidence(rows=rows, losses=losses, settings=late))
    assert found.verdict[0] == "temperature-too-low"
    assert "temperature of 0.8 (now 0.02)" in found.findings[0].change
    even = [{**row, "temperature": 16.0, "hardest_share": 0.15} for row in rows]
    found = diagnose(RunEvidence(rows=even, losses=(), kind="text", settings=late))
    assert found.verdict[0] == "negatives-not-hard"
    assert "temperature of 0.8 (now 16)" in found.findings[0].change


def test_an_encoder_from_scratch_separates_no_pairs_at_its_first_step() -> None:
    first = {"positive_mean": 0.345, "positive_std": 0.06, "negative_mean": 0.346}
    row = {"positive_mean": 0.65, "positive_std": 0.2, "negative_mean": 1.4, "negative_std": 0.24}
    rows = [{"step": step, "loss": 1.0, **(row if step else first)} for step in range(12)]
    assert "unrelated-positives" not in diagnose(RunEvidence(rows=rows)).verdict
    shuffled = [{**one, **first, "negative_std": 0.06} for one in rows]
    assert diagnose(RunEvidence(rows=shuffled)).verdict[0] == "unrelated-positives"


def test_copies_that_come_late_are_not_in_the_data() -> None:
    rows = [{"step": step, "loss": 1.0, "false_negatives": 0.5 * (step > 8)} for step in range(12)]
    assert "false-negatives" not in diagnose(RunEvidence(rows=rows)).verdict
    rows = [{**row, "false_negatives": 0.5} for row in rows]
    assert "false-negatives" in diagnose(RunEvidence(rows=rows)).verdict


@pytest.mark.parametrize(("share", "low"), [(0.98, True), (0.6, False)])
def test_each_anchor_is_decided_at_a_temperature_near_zero(share: float, low: bool) -> None:
    """Scores that are no cosines may adapt to their temperature: their lengths grow or shrink."""
    start = {"hardest_share": 0.98, "dead": 0.2, "dissipation": 0.79}
    given = case(
        start=start, hardest_share=share, parameters={"temperature": 0.004}, scores=(80.0, 80.5)
    )
    given = replace(given, rows=[{**row, "uniformity": None} for row in given.rows])
    found = diagnose(given)
    assert ("temperature-too-low" in found.verdict) is low
    if low:
        assert "decided" in [evidence.name for evidence in found.findings[0].evidence]


@pytest.mark.parametrize(
    ("settings", "numbers", "found"),
    [
        ({"margin": 5.0, "largest-distance": 2.0}, {"radial": 0.0}, True),
        ({"margin": 5.0, "largest-distance": 2.0}, {"radial": 0.4, "norm": 1.0}, True),
        ({"margin": 5.0, "largest-distance": 2.0}, {"radial": 0.4}, False),  # they may grow
        ({"margin": 0.5, "largest-distance": 2.0}, {"radial": 0.0}, False),
        ({}, {"radial": 0.0}, False),
    ],
)
def test_a_margin_above_the_largest_distance_is_never_kept(
    settings: dict[str, Any], numbers: dict[str, float], found: bool
) -> None:
    settings = {**settings, "trainer": "sentence-transformers"}
    given = case(settings=settings, start=numbers, **numbers)
    given = replace(given, objective=None, words=Words(margin="triplet_margin={}"))
    verdict, change = first(diagnose(given))
    assert verdict == ("never-dissipating" if found else HEALTHY)
    assert change == ("triplet_margin=0.3 (now 5)" if found else "")


@pytest.mark.parametrize(
    ("loss", "settings", "change"),
    [
        ("CoSENTLoss", {}, "a short training with MultipleNegativesRankingLoss(model)"),
        (
            "CachedMultipleNegativesRankingLoss",
            {"learning-rate": 1e-6},
            "learning_rate=1e-05 (now 1e-06)",
        ),
        ("MultipleNegativesRankingLoss", {}, "ten times the learning rate"),
    ],
)
def test_a_contrastive_training_is_not_told_to_be_one(
    loss: str, settings: dict[str, Any], change: str
) -> None:
    given = RunEvidence(
        settings={**settings, "trainer": "sentence-transformers"},
        losses=({"name": loss},),
        words=HOSTS["sentence_transformers"],
    )
    assert VERDICTS["anisotropic-start"].change.worded(given) == change


@pytest.mark.parametrize(("by_heart", "verdict"), [(True, "unrelated-positives"), (False, HEALTHY)])
def test_pairs_learnt_by_heart_are_separated_from_the_second_epoch_on(
    by_heart: bool, verdict: str
) -> None:
    """Related pairs are learnt step by step, also those that the training has not seen yet."""
    rows = []
    for step in range(60):
        lead = 0.7 * (step // 16) if by_heart else max(0.0, 0.1 * (step - 20))
        angles = {"positive_mean": 1.4 - 0.15 * lead, "negative_mean": 1.4}
        row = {**SOUND, **angles, "negative_std": 0.15, "step": step, "loss": 6 / (1 + lead)}
        rows.append({**row, "epoch": float(step // 16)})
    assert diagnose(RunEvidence(rows=rows)).verdict[0] == verdict


def test_pairs_learnt_by_heart_are_found_although_single_batches_differ_by_chance() -> None:
    """The first batch is no exception, and a third of the log has a part of the second epoch."""
    found = 0
    for seed in range(20):
        chance, rows = random.Random(seed), []
        for step in range(60):
            lead = 0.7 * (step // 16) + 0.18 * chance.gauss()
            angles = {"positive_mean": 1.4 - 0.15 * lead, "negative_mean": 1.4}
            row = {**SOUND, **angles, "negative_std": 0.15, "step": step}
            rows.append({**row, "epoch": float(step // 16), "loss": 6 - 1.2 * (step // 16)})
        found += diagnose(RunEvidence(rows=rows)).verdict[0] == "unrelated-positives"
    assert found >= 19


@pytest.mark.parametrize("seed", range(20))
def test_an_encoder_that_is_destroyed_at_once_had_related_pairs(seed: int) -> None:
    chance, rows = random.Random(seed), []
    for step in range(60):
        lead = 2.0 * 0.5**step + 0.18 * chance.gauss()
        angles = {"positive_mean": 1.4 - 0.15 * lead, "negative_mean": 1.4}
        rows.append({**SOUND, **angles, "negative_std": 0.15, "step": step, "loss": 2.0})
    assert "unrelated-positives" not in diagnose(RunEvidence(rows=rows)).verdict


def watched(
    first: dict[str, float | None], later: dict[str, float | None], steps: int = 12
) -> Diagnosis:
    """The diagnosis of a loop with a softmax, whose first row differs from the others."""
    rows = [{**SOUND, "step": step, **(later if step else first)} for step in range(steps)]
    return diagnose(RunEvidence(rows=rows, losses=({"name": "the loss", "family": "softmax"},)))


@pytest.mark.parametrize(
    ("first", "later", "verdict"),
    [
        # embeddings move together, and the loss is above its start
        (
            {"std": 0.11, "loss": 1.8, "temperature": 0.05},
            {"std": 0.065, "loss": 2.4, "temperature": 0.05},
            "diverging",
        ),
        # copies have equal shares of the push
        (
            {"temperature": 0.05, "radial": 0.0, "negatives": 63.0},
            {"temperature": 0.05, "radial": 0.0, "negatives": 63.0, "hardest_share": 0.017},
            "negatives-not-hard",
        ),
    ],
)
def test_what_copies_explain(
    first: dict[str, float | None], later: dict[str, float | None], verdict: str
) -> None:
    assert watched(first, later).verdict[0] == verdict
    copies: dict[str, float | None] = {"false_negatives": 1.0}
    assert watched({**first, **copies}, {**later, **copies}).verdict == ("false-negatives",)


def test_an_encoder_from_scratch_knows_copies_when_it_has_learnt() -> None:
    """Also if it knew none of them in the first third."""
    rows = [
        {**SOUND, "step": step, "loss": 1.0, "false_negatives": 0.9 * (step > 8)}
        for step in range(12)
    ]
    assert "false-negatives" in diagnose(RunEvidence(rows=rows)).verdict
    apart = {"positive_mean": 1.3, "positive_std": 0.2}
    destroyed = [{**row, **(apart if row["step"] > 8 else {})} for row in rows]
    assert "false-negatives" not in diagnose(RunEvidence(rows=destroyed)).verdict
    # dot products tell rows of one direction apart by their lengths
    products = [{**row, "radial": 0.5} for row in rows]
    assert "false-negatives" not in diagnose(RunEvidence(rows=products)).verdict


def test_a_temperature_of_distances_is_not_that_of_cosines() -> None:
    cosines: dict[str, float | None] = {
        "temperature": 1.0,
        "hardest_share": 0.03,
        "negatives": 63.0,
        "radial": 0.0,
    }
    assert watched(cosines, cosines).verdict == ("negatives-not-hard",)
    distances: dict[str, float | None] = {**cosines, "radial": None}
    assert watched(distances, distances).verdict == (HEALTHY,)


@pytest.mark.parametrize(("radial", "cosines"), [(0.0, True), (0.02, False)])
def test_rows_of_uneven_length_are_no_cosines(radial: float, cosines: bool) -> None:
    """The gradient of F.normalize(x, dim=0) hardly changes lengths, but they differ."""
    row: dict[str, float | None] = {"temperature": 0.05, "radial": radial, "negatives": 63.0}
    row |= {"hardest_share": 0.99, "dead": 0.6, "dissipation": 0.3}
    assert ("temperature-too-low" in watched(row, row).verdict) is not cosines


@pytest.mark.parametrize(
    ("radial", "over", "hardest", "healthy"),
    [
        (0.2, 8.0, 0.9, False),
        (0.2, 8.0, 0.2, False),  # several negatives share the push
        (0.2, None, 0.9, True),
        (0.0, 8.0, 0.9, True),
        (0.2, 0.5, 0.9, True),  # the mean of a sum over 16 rows, or another term is large
    ],
)
def test_a_loss_far_above_guessing_is_not_healthy(
    radial: float, over: float | None, hardest: float, healthy: bool
) -> None:
    """Products of rows that should have been normalised."""
    row = {**SOUND, "temperature": 0.05, "radial": radial, "negatives": 15.0}
    row["hardest_share"] = hardest
    rows = [{**row, "step": step, "loss": 40.0 - step} for step in range(18)]
    losses = ({"name": "the loss", "family": "softmax", "over_guess": over},)
    loop = {"trainer": "loop", "moved": True}
    found = diagnose(RunEvidence(rows=rows, losses=losses, settings=loop))
    assert found.verdict == (HEALTHY if healthy else "not-examined",)
    if not healthy:
        (finding,) = found.findings
        assert "normalize" in finding.change
        number = finding.evidence[0]  # the median of the last six losses is 25.5, the last is 23
        assert number.number == pytest.approx(8.0 * 25.5 / 23)
        assert number.unit == "times the loss of guessing"


@pytest.mark.parametrize(
    ("loss", "nearer", "healthy"),
    [(6.2, 0.01, False), (6.2, 0.2, True), (5.0, 0.01, True)],
)
def test_a_softmax_that_ends_like_guessing_is_not_healthy(
    loss: float, nearer: float, healthy: bool
) -> None:
    """A queue of random vectors is easy at first, so a loss that rises from there is no sign."""
    row = {**SOUND, "temperature": 0.1, "radial": 0.0, "negatives": 512.0, "hardest_share": 0.1}
    row |= {"positive_std": 0.1, "negative_std": 0.1, "negative_mean": 1.0, "positive_mean": 0.9}
    rows = [{**row, "step": step, "loss": 6.0} for step in range(12)]
    end = {"loss": loss, "positive_mean": 1.0 - nearer}
    rows += [{**row, "step": step, **end} for step in range(12, 18)]
    losses = ({"name": "the loss", "family": "softmax", "over_guess": loss / math.log(513)},)
    loop = {"trainer": "loop", "moved": True}
    found = diagnose(RunEvidence(rows=rows, losses=losses, settings=loop, kind="images"))
    assert found.verdict == (HEALTHY if healthy else "not-examined",)
    assert healthy or "steps" in found.findings[0].change


@pytest.mark.parametrize(("misfit", "deciding"), [(0.4, "left_out"), (0.0, "over_guess")])
def test_the_change_belongs_to_the_reason(misfit: float, deciding: str) -> None:
    """Several reasons can hold at once; each has its own change."""
    row = {**SOUND, "temperature": 0.05, "radial": 0.2, "negatives": 15.0, "loss": 40.0}
    row |= {"misfit": misfit, "hardest_share": 0.9}
    losses = ({"name": "the loss", "family": "softmax", "over_guess": 14.4},)
    for settings in ({"trainer": "loop", "moved": True}, {"trainer": "transformers"}):
        rows = [{**row, "step": step} for step in range(18)]
        (finding,) = diagnose(RunEvidence(rows=rows, losses=losses, settings=settings)).findings
        assert finding.evidence[0].name == deciding
        assert ("observe(TERM)" in finding.change) == (deciding == "left_out")
        assert ("normalize" in finding.change) == (deciding == "over_guess")


@pytest.mark.parametrize(
    ("temperature", "queue", "verdict"),
    [
        (1.0, False, "negatives-not-hard"),
        (1.0, True, HEALTHY),
        (2.0, True, "negatives-not-hard"),
    ],
)
def test_a_momentum_encoder_of_images_may_have_a_temperature_of_1(
    temperature: float, queue: bool, verdict: str
) -> None:
    row = {**SOUND, "temperature": temperature, "radial": 0.0, "negatives": 63.0}
    rows = [{**row, "step": step, "hardest_share": 0.04} for step in range(12)]
    losses = ({"name": "the loss", "family": "softmax"},)
    settings = {"trainer": "loop", "moved": True, "queue": queue}
    found = diagnose(RunEvidence(kind="images", rows=rows, losses=losses, settings=settings))
    assert found.verdict == (verdict,)
    # a run of isotrope has no losses of a trainer, and records the options of its method
    options = asdict(MoCoV3Options()) if queue else {}
    details = {"method": {"name": "mocov3", "options": options}}
    run = RunEvidence(
        kind="images", rows=rows, details=details, objective=InfoNCE(temperature=temperature)
    )
    assert diagnose(run).verdict == (verdict,)


@pytest.mark.parametrize(
    ("temperature", "kind", "verdict"),
    [
        (0.5, "text", "negatives-not-hard"),
        (0.5, "images", HEALTHY),
        (0.5, "", "not-examined"),
        (1.0, "", "negatives-not-hard"),
        (0.2, "text", HEALTHY),
    ],
)
def test_a_temperature_of_cosines_is_judged_by_what_the_inputs_are(
    temperature: float, kind: Any, verdict: str
) -> None:
    """Large batches at 0.2 push nearly all alike too, and are sound."""
    row = {**SOUND, "temperature": temperature, "radial": 0.0, "negatives": 63.0}
    rows = [{**row, "step": step, "hardest_share": 0.04} for step in range(12)]
    losses = ({"name": "the loss", "family": "softmax"},)
    loop = {"trainer": "loop", "moved": True}
    found = diagnose(RunEvidence(kind=kind, rows=rows, losses=losses, settings=loop))
    assert found.verdict == (verdict,)
    if not found.healthy:
        assert f"A temperature of {temperature:g}" in found.findings[0].detail
        assert f"a temperature of 0.05 (now {temperature:g})" in found.findings[0].change


@pytest.mark.parametrize(("end", "verdict"), [(2.5, "not-examined"), (3.1, "unrelated-positives")])
def test_towers_from_scratch_that_begin_to_learn(end: float, verdict: str) -> None:
    """The loss has fallen by a quarter, and positives lead by most of a standard deviation."""
    scratch = {"positive_mean": 1.435, "negative_mean": 1.439, "positive_std": 0.07}
    learnt = {"positive_mean": 1.15, "negative_mean": 1.25, "positive_std": 0.11}
    rows = [
        {"step": step, "loss": 3.3, "negative_std": 0.11, **scratch}
        if step < 8
        else {"step": step, "loss": end, "negative_std": 0.11, **learnt}
        for step in range(18)
    ]
    found = diagnose(RunEvidence(rows=rows, losses=({"name": "loss", "family": "softmax"},)))
    assert found.verdict == (verdict,)
