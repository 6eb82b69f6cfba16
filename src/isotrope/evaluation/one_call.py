"""``isotrope.evaluate``: what the command of the same name does, as one function."""

from pathlib import Path

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.evaluation.embed import Encoder

__all__ = ["evaluate"]


def evaluate(
    model: str | Path | Encoder,
    *,
    sts: str | Path | None = None,
    retrieval: str | Path | None = None,
    pooling: str | None = None,
    device: str = "auto",
    batch_size: int = 128,
    progress: bool = False,
) -> Result:
    """Score a model on the STS tasks, a retrieval set, or both.

    Args:
        model: a name or folder for ``isotrope.load``, or anything with ``encode``.
        sts: folder of the seven STS tasks.
        retrieval: folder of a retrieval set, or file of pairs.
        pooling: None keeps the model's own; only for a name or folder.
        device: ``auto``, ``cpu``, ``cuda``, ...; only for a name or folder.
        batch_size: texts a batch.
        progress: show a bar on stderr.

    Returns:
        What ``sts`` or ``retrieval`` returns; of both, metrics and details together.

    Raises:
        InputError: nothing to evaluate on, or something wrong with the model or the data.
    """
    from isotrope.data.retrieval_sets import load_retrieval
    from isotrope.evaluation.retrieval import retrieval as score_retrieval
    from isotrope.evaluation.sts import load_tasks
    from isotrope.evaluation.sts import sts as score_sts

    if sts is None and retrieval is None:
        raise InputError(
            "nothing to evaluate on: give the folder of the STS tasks or a retrieval set"
        )
    # the data first: a mistyped folder shows before a model is loaded
    tasks = None if sts is None else load_tasks(Path(sts))
    found = None if retrieval is None else load_retrieval(retrieval)
    encoder = _encoder(model, pooling, device)
    results = []
    if tasks is not None:
        results.append(score_sts(encoder, tasks, progress=progress, batch_size=batch_size))
    if found is not None:
        results.append(score_retrieval(encoder, found, progress=progress, batch_size=batch_size))
    if len(results) == 1:
        return results[0]
    first, second = results
    return Result(
        kind="sts+retrieval",
        name=first.name,
        metrics={**first.metrics, **second.metrics},
        details={**first.details, **second.details},
        provenance=first.provenance,
    )


def _encoder(model: str | Path | Encoder, pooling: str | None, device: str) -> Encoder:
    if not isinstance(model, (str, Path)):
        return model
    from isotrope.encoders.sentence import SentenceEncoder

    return SentenceEncoder.load(model, pooling=pooling, device=device)
