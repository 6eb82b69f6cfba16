"""Trains a second model on all records, and averages the weights of the first and second model.

The first model does not learn from the held-out records. The second model also learns from these
records, with another seed. In our trials, the mean of the weights scored higher on separate test
data than the first model (docs/LOG.md). A run cannot score the mean: no held-out record is left.
"""

from collections.abc import Callable
from dataclasses import replace

from isotrope.core.lock import ensure_not_replaced
from isotrope.core.run_folder import RunFolder
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.measures.judgement import DevHistory
from isotrope.training import changes
from isotrope.training.card import card_of_mean
from isotrope.training.progress import warn
from isotrope.training.run import Outcome, awaits_second
from isotrope.training.settings import TrainSettings
from isotrope.training.text_encoder import encoder_of

SECOND = 0.4
"""Share of ``--minutes`` above which the first training leaves no time for a second one."""
ON_ALL_RECORDS = {"dev": None, "holdout": 0.0, "patience": None}
"""The settings of a training without held-out records, and so without a dev score."""


def refitted(
    settings: TrainSettings,
    outcome: Outcome,
    train: Callable[[TrainSettings], Outcome],
) -> Outcome:
    """Train a second model on all records, and save the mean of both models' weights.

    Nothing is done if the run was stopped, if the original model was better, or if ``--minutes``
    has no time for it.
    """
    result, folder = outcome.result, RunFolder(settings.output)
    if outcome.exit_code or not awaits_second(settings, result):
        return outcome
    took = float(result.metrics["seconds"] or 0)
    spent = took + (result.details.get("time") or {}).get("else", 0.0)  # also of resumed parts
    if settings.minutes is not None and max(took / SECOND, spent + took) > 60 * settings.minutes:
        warn(f"no second training: the first took {spent / 60:.1f} of {settings.minutes:g} minutes")
        result.details["refit"] = None  # decided
        result.save(folder.result)
        return outcome
    warn(f"training a second time, including the held-out records ({folder.refit})")
    seed = (settings.seed + 1) % 2**32
    own = {"output": str(folder.refit), "seed": seed, "refit": False}
    second = train(settings.model_copy(update={**own, **ON_ALL_RECORDS}))
    if second.exit_code:
        return replace(outcome, exit_code=second.exit_code)
    records = second.result.details["data"]["records"]
    encoder = SentenceEncoder.load(folder.model, device=settings.device)
    ensure_not_replaced(folder.path)
    if encoder.fingerprint() == result.details["model"]["fingerprint"]:  # the mean is not saved yet
        other = SentenceEncoder.load(RunFolder(folder.refit).model, device=settings.device)
        # a tensor that layers share has several names
        ours, theirs = encoder.state_dict(), other.state_dict()
        means = {k: x.lerp(theirs[k], 0.5) for k, x in ours.items() if x.is_floating_point()}
        encoder.load_state_dict({**ours, **means})
        card = (folder.model / "README.md").read_text(encoding="utf-8")
        encoder.save(folder.model, card=card_of_mean(card, records, seed))
    result.details["model"]["fingerprint"] = encoder.fingerprint()
    before = changes.similarities(encoder_of(settings))
    result.details["kept"] = changes.kept(before, encoder, DevHistory("dev"))
    result.details["refit"] = {"records": records, "seconds": second.result.metrics["seconds"]}
    result.save(folder.result)
    return replace(outcome, encoder=encoder)
