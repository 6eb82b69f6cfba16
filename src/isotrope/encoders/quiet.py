"""Silences libraries while they load models, and restores the random state that they change."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isotrope.core.autograd import seeded
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# matches a line in the report of transformers, such as "pooler.dense.bias | MISSING | ..."
_MISSING = re.compile(r"^(\S.*?)\s*\|\s*MISSING\b", re.MULTILINE)


class LoadReport(logging.Handler):
    """Collects the messages that libraries log while they load a model, without printing them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of ``record``."""
        self.messages.append(_COLOUR.sub("", record.getMessage()))

    def check(self, folder: Path) -> None:
        """Raise an error if weights are not in the model's files, and so were set at random."""
        names = (name for text in self.messages for name in _MISSING.findall(text))
        # a sentence encoder does not use BERT's pooler
        if missing := sorted(name for name in names if "pooler." not in name):
            more = len(missing) - 3
            raise InputError(
                f"copy {folder} again from its source; the model lacks weights that its "
                "config.json needs: "
                + ", ".join(missing[:3])
                + (f" and {more} more groups of weights" if more > 0 else "")
            )


@contextmanager
def model_written(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder for a model's files, which replaces ``folder`` at the end."""
    from safetensors import SafetensorError

    with atomic_replace(folder) as temporary, quiet_loading():
        temporary.mkdir()
        try:
            yield temporary
        except SafetensorError as error:  # safetensors raises it for a full disk
            raise OSError(str(error)) from error
        for weights in temporary.rglob("*.safetensors"):
            # safetensors writes files that only their owner can read
            weights.chmod(temporary.stat().st_mode & 0o666)


@contextmanager
def quiet_loading(seed: int = 0) -> Iterator[LoadReport]:
    """Silence transformers and sentence-transformers, and give them a separate random state.

    These libraries draw missing weights, such as a pooler, from torch's CPU generator. In the
    ``with`` block, the draws depend only on ``seed``. Afterwards, the generator is as before.
    """
    from transformers.utils import logging as messages

    report = LoadReport()
    loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers")]
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    bars = messages.is_progress_bar_enabled()
    messages.disable_progress_bar()
    for logger in loggers:
        logger.handlers, logger.propagate = [report], False
        logger.setLevel(logging.WARNING)
    try:
        with seeded(seed):
            yield report
    finally:
        for logger, handlers, propagate, level in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        if bars:
            messages.enable_progress_bar()
