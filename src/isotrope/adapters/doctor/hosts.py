"""The names of settings in trainers and loss libraries, one record for each library.

With a record, the Doctor's advice names the settings of the user's library. Without a record, the
advice is in general words.
"""

from collections.abc import Iterable
from dataclasses import replace

from isotrope.diagnostics.evidence import Words

_TRANSFORMERS = Words(rate="learning_rate={}", batch="per_device_train_batch_size={}")
_FLAGS = Words(
    temperature="--temperature {}",
    rate="--learning_rate {}",
    batch="--per_device_train_batch_size {}",
    negatives="more hard negatives: --train_group_size",
)
_LOSS_ARGUMENT = Words(temperature="temperature={}")
_CONTRASTIVE = "MultipleNegativesRankingLoss"

HOSTS: dict[str, Words] = {
    "pylate": Words(
        temperature="temperature={}", rate=_TRANSFORMERS.rate, batch=_TRANSFORMERS.batch
    ),
    "sentence_transformers": Words(
        temperature="scale={}",
        inverse=True,
        rate=_TRANSFORMERS.rate,
        batch=_TRANSFORMERS.batch,
        cached=f"; if it does not fit, Cached{_CONTRASTIVE}(model, mini_batch_size={{}})",
        harder="harder negatives: mine_hard_negatives(dataset, model, ...)",
        margin="triplet_margin={}",
        contrastive=f"{_CONTRASTIVE}(model)",
        contrastive_name=_CONTRASTIVE,
        without_labels=" without the label column",
        copies="batch_sampler=BatchSamplers.NO_DUPLICATES; for near duplicates, "
        "GISTEmbedLoss(model, guide=...)",
        views="a second column with another text, or a model whose dropout is not 0",
        related="columns in the order (anchor, positive, negative): use "
        "train_dataset.select_columns([...]); if the order is right, rows whose texts belong "
        "together",
        shorter="models.Normalize() as the last module, or a lower learning_rate",
        best='load_best_model_at_end=True with eval_strategy="steps", or fewer num_train_epochs',
    ),
    "FlagEmbedding": _FLAGS,
    "tevatron": _FLAGS,
    "swift": Words(
        temperature="INFONCE_TEMPERATURE={}",
        rate=_FLAGS.rate,
        batch=_FLAGS.batch,
        contrastive="--loss_type infonce",
    ),
    "open_clip": Words(
        temperature="a logit scale of {}", inverse=True, rate="--lr {}", batch="--batch-size {}"
    ),
    "lightly": _LOSS_ARGUMENT,
    "pytorch_metric_learning": _LOSS_ARGUMENT,
    "stable_pretraining": _LOSS_ARGUMENT,
    "transformers": _TRANSFORMERS,
}
"""Records by package; a package comes before the packages on which it is built."""


def words_of(things: Iterable[object]) -> Words:
    """Return the record of the first known package that defines one of the objects.

    Its argument for the temperature is named only if one of the objects has this argument.
    """
    known = list(things)
    roots = {kind.__module__.partition(".")[0] for x in known for kind in type(x).__mro__}
    words = next((words for name, words in HOSTS.items() if name in roots), Words())
    argument = words.temperature.removesuffix("={}")
    if argument not in ("temperature", "scale") or any(hasattr(x, argument) for x in known):
        return words
    return replace(words, temperature=Words().temperature, inverse=False)
