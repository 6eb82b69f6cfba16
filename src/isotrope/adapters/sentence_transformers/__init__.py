"""Objectives as losses, and protocols as evaluators, for the sentence-transformers trainer.

``ObjectiveLoss`` and ``CachedObjectiveLoss`` turn any objective into a loss. ``ProtocolEvaluator``
gives the same scores as ``isotrope evaluate``. :class:`isotrope.Doctor` measures these losses too::

    from isotrope.adapters.sentence_transformers import ObjectiveLoss, ProtocolEvaluator

    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=data,
        loss=ObjectiveLoss(model, "met"),
        evaluator=ProtocolEvaluator(sts="data/sts"),
        callbacks=[isotrope.Doctor()],
    )
"""

from isotrope.core.errors import needs_extra

with needs_extra("st"):
    from isotrope.adapters.sentence_transformers.evaluators import ProtocolEvaluator
    from isotrope.adapters.sentence_transformers.losses import CachedObjectiveLoss, ObjectiveLoss

__all__ = ["CachedObjectiveLoss", "ObjectiveLoss", "ProtocolEvaluator"]
