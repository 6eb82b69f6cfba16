"""Words the changes that several verdicts propose for trainers other than ``isotrope train``."""

from isotrope.diagnostics.evidence import RunEvidence

CONTRASTIVE = "MultipleNegativesRankingLoss"


def larger_batch(case: RunEvidence, *, arguments: bool) -> str:
    """Return a batch four times as large, in words or as an argument of sentence-transformers."""
    size = max(64, 4 * (case.batch_size or 16))
    change = f"per_device_train_batch_size={size}" if arguments else f"a batch of {size} rows"
    if case.batch_size is not None:
        change += f" (now {case.batch_size})"
    if arguments and is_contrastive(case):
        change += (
            f"; if memory does not hold it, Cached{CONTRASTIVE}(model, mini_batch_size="
            f"{max(8, min(32, case.batch_size or 32))})"
        )
    return change


def harder_negatives(case: RunEvidence, *, arguments: bool = False) -> str:
    """Return a temperature twice as high, or larger batches, and harder negatives."""
    tau = loss_temperature(case)
    if tau is None:
        larger = larger_batch(case, arguments=arguments)
        return f"{larger}, or a column of hard negatives in the data"
    if arguments:
        return (
            f"scale={1 / (2 * tau):.3g} (now {1 / tau:.3g}), or harder negatives: "
            "mine_hard_negatives(...)"
        )
    return f"a temperature of {2 * tau:.3g} (now {tau:.3g}), or harder negatives"


def slower(case: RunEvidence) -> str:
    """Return a learning rate divided by ten."""
    rate = case.setting("learning-rate")
    if rate is None:
        return "a learning rate divided by 10"
    return f"learning_rate={float(rate) / 10:.2g} (now {float(rate):g})"


def is_contrastive(case: RunEvidence) -> bool:
    """Return whether the first loss with a name is a contrastive one of sentence-transformers."""
    name = next((str(loss["name"]) for loss in case.losses if loss.get("name")), "")
    return CONTRASTIVE in name


def loss_temperature(case: RunEvidence) -> float | None:
    """Return the temperature of the losses as recognised, or as measured."""
    temperatures = [loss["temperature"] for loss in case.losses if loss.get("temperature")]
    return float(temperatures[0]) if temperatures else case.end("temperature")
