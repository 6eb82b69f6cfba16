"""Scores an image encoder by nearest neighbours and a linear probe on frozen features.

kNN follows Draganov et al. (2024) and Manna et al. (2023): features of the backbone, without the
heads of training, k = 200 neighbours, votes of exp(cosine/0.1).
"""

from typing import TYPE_CHECKING

from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance
from isotrope.evaluation.embed import Encoder, encoder_name
from isotrope.evaluation.image_features import both_features
from isotrope.evaluation.knn import knn as nearest_neighbours
from isotrope.evaluation.linear_probe import Probe, linear_probe
from isotrope.measures.judgement import DevEvaluation

if TYPE_CHECKING:
    from isotrope.data.images.records import ImageSet


def image_scores(
    encoder: Encoder,
    image_set: "ImageSet",
    *,
    knn: bool = True,
    linear: bool = False,
    probe: Probe | None = None,
    device: str = "cpu",
    batch_size: int = 256,
    progress: bool = False,
) -> Result:
    """Score an encoder on the labelled pictures of a set; each picture is encoded once.

    Args:
        encoder: See :func:`isotrope.evaluation.image_features.image_features`.
        image_set: a set with labels and a test part.
        knn: Classify by nearest neighbours, see :func:`isotrope.evaluation.knn.knn`.
        linear: Score a linear probe, see :func:`isotrope.evaluation.linear_probe.linear_probe`.
        probe: How the linear probe is fitted.
        device: Device on which to fit it.
        batch_size: Pictures held and encoded at a time.
        progress: Show bars on stderr.

    Returns:
        A Result of kind ``knn``, ``linear`` or ``knn+linear``: metrics ``knn_top1``,
        ``knn_top5``, ``knn_majority_top1``, ``linear_top1``, ``linear_top5`` in [0, 1], details of
        each kind under its name, and whether each test picture was right in ``items``.
    """
    if not knn and not linear:
        raise InputError("nothing to score: choose nearest neighbours, a linear probe, or both")
    name = encoder_name(encoder)
    train, test = both_features(encoder, image_set, batch_size=batch_size, progress=progress)
    results = []
    if knn:
        results.append(nearest_neighbours(train, test, name=name))
    if linear:
        results.append(linear_probe(train, test, probe, device=device, name=name))
    return Result(
        kind="+".join(result.kind for result in results),
        name=name,
        metrics={key: value for result in results for key, value in result.metrics.items()},
        details={key: value for result in results for key, value in result.details.items()},
        provenance=provenance(data=image_set.fingerprint),
        items={key: values for result in results for key, values in result.items.items()},
    )


def knn_evaluation(
    encoder: Encoder,
    image_set: "ImageSet",
    *,
    limit_train: int | None = None,
    limit_test: int | None = None,
    k: int = 200,
    temperature: float = 0.1,
    batch_size: int = 256,
) -> DevEvaluation:
    """Return the percentage of test pictures that their neighbours classify correctly, and which.

    Args:
        encoder: See :func:`isotrope.evaluation.image_features.image_features`.
        image_set: a set with labels and a test part.
        limit_train: Largest number of training pictures, evenly over the classes; None takes all.
        limit_test: Largest number of test pictures.
        k: Neighbours; all training pictures if they are fewer.
        temperature: The temperature of their votes.
        batch_size: Pictures held and encoded at a time.
    """
    train, test = both_features(
        encoder, image_set, limit_train=limit_train, limit_test=limit_test, batch_size=batch_size
    )
    result = nearest_neighbours(train, test, k=k, temperature=temperature)
    return DevEvaluation(100 * float(result.metrics["knn_top1"] or 0.0), result.items["knn_top1"])
