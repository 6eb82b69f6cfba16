"""sentence-transformers: our objectives, anatomy and scores inside of its own trainer.

``ObjectiveLoss`` and ``CachedObjectiveLoss`` make a loss of any objective, ``record`` notes the
gradient anatomy of any loss, and ``ProtocolEvaluator`` scores as ``isotrope evaluate`` does::

    from isotrope.adapters.sentence_transformers import ObjectiveLoss, ProtocolEvaluator, record

    loss = ObjectiveLoss(model, "met")
    evaluator = ProtocolEvaluator(sts="data/sts")
    trainer = SentenceTransformerTrainer(
        model=model, args=args, train_dataset=data, loss=loss, evaluator=evaluator
    )
    anatomy = record(trainer, "runs/theirs")
    trainer.train()
    print(anatomy.diagnose())
"""

from isotrope.core.errors import MissingExtra

try:
    import sentence_transformers as _  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "sentence_transformers", extra="train") from error

from isotrope.adapters.sentence_transformers.evaluators import ProtocolEvaluator
from isotrope.adapters.sentence_transformers.losses import CachedObjectiveLoss, ObjectiveLoss
from isotrope.adapters.sentence_transformers.record import record

__all__ = ["CachedObjectiveLoss", "ObjectiveLoss", "ProtocolEvaluator", "record"]
