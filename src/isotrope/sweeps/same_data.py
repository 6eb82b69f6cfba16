"""Refuses to rank runs whose data changed between them (a file was rewritten, for example)."""

from collections.abc import Iterator

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.sweeps.spec import Sweep, Values
from isotrope.training.images.settings import ImageSettings
from isotrope.training.settings import RunSettings, TrainSettings


class SameData:
    """The data of the runs of a sweep so far.

    Args:
        spec: the sweep.
    """

    def __init__(self, spec: Sweep) -> None:
        self.spec = spec
        self._seen: dict[object, tuple[str, object]] = {}  # fingerprint and folder, by settings

    def check(self, values: Values, seed: int, result: Result | str | InputError | None) -> None:
        """Refuse a result that comes from other data with the same settings.

        Args:
            values: The values of the trial.
            seed: The seed of the run.
            result: The result; a run without one is not checked.
        """
        if not isinstance(result, Result):
            return
        folder = self.spec.folder(values, seed)
        for name, settings, fingerprint in _data(self.spec.run(values, seed), result):
            first, other = self._seen.setdefault(settings, (fingerprint, folder))
            if fingerprint != first:
                raise InputError(
                    f"{name} changed between {folder} and {other}, and scores of runs on "
                    "different data cannot be ranked: choose another `--output`, or delete the "
                    "older run"
                )


def _data(settings: RunSettings, result: Result) -> Iterator[tuple[str, object, str]]:
    """Yield the data of a run: their name, the settings that decide them, their fingerprint."""
    trained_on = result.provenance.get("data")
    if not isinstance(settings, TrainSettings):
        assert isinstance(settings, ImageSettings)
        pictures = settings.data, settings.classes, settings.limit, settings.image_size
        by_seed = settings.holdout or settings.data == "digits"  # a fifth of these is held out
        drawn = (settings.holdout, settings.seed) if by_seed else ()
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
