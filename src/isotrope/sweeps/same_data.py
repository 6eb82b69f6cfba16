"""Refuses to rank runs whose data have changed between them: a file was written anew, say."""

from collections.abc import Iterator, Sequence

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.sweeps.spec import Sweep
from isotrope.sweeps.trials import Trial
from isotrope.training.images.settings import ImageSettings
from isotrope.training.settings import RunSettings, TrainSettings

__all__ = ["check_data"]


def check_data(spec: Sweep, trials: Sequence[Trial]) -> None:
    """Refuse results that the same settings have got from different data.

    Args:
        spec: the sweep.
        trials: with the results that there are.

    Raises:
        InputError: naming the data and two runs.
    """
    seen: dict[object, tuple[str, object]] = {}
    for trial in trials:
        for seed, result in trial.results.items():
            folder = spec.folder(trial.values, seed)
            for name, settings, fingerprint in _data(spec.run(trial.values, seed), result):
                first, other = seen.setdefault(settings, (fingerprint, folder))
                if fingerprint != first:
                    raise InputError(
                        f"{name} had other contents for {folder} than for {other}, and scores of "
                        "runs on different data cannot be ranked: choose another --output, or "
                        "delete the older of them"
                    )


def _data(settings: RunSettings, result: Result) -> Iterator[tuple[str, object, str]]:
    """Yield the data of a run: their name, the settings that decide them, their fingerprint."""
    trained_on = result.provenance.get("data")
    if not isinstance(settings, TrainSettings):
        assert isinstance(settings, ImageSettings)
        pictures = settings.data, settings.classes, settings.limit, settings.image_size
        drawn = (settings.holdout, settings.seed) if settings.holdout else ()
        if trained_on is not None:
            yield settings.data, (*pictures, settings.encoder, *drawn), trained_on
        return
    # neighbours of what is held out are left out
    held_out = (settings.held_out, settings.seed) if settings.views == "adjacent" else ()
    texts = tuple(settings.files), tuple(settings.columns), settings.groups, settings.views
    if trained_on is not None:
        yield ", ".join(settings.inputs), (*texts, settings.streaming, *held_out), trained_on
    dev = result.details.get("dev")
    scored_on = dev.get("data") if isinstance(dev, dict) else None  # None by an older version
    if settings.dev not in (None, "auto") and scored_on:  # auto is a part of the data
        yield str(settings.dev), ("dev", str(settings.dev)), scored_on
