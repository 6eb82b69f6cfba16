"""Adapts encoders to mteb's interface, and turns local STS sets into mteb tasks.

mteb evaluates, so the numbers are its own::

    import isotrope, mteb
    from isotrope.adapters.mteb import MTEBEncoder, local_sts

    encoder = MTEBEncoder(isotrope.load("all-MiniLM-L6-v2"))
    found = mteb.evaluate(encoder, local_sts("data/sts"), cache=None)  # nothing is downloaded
    print({r.task_name: 100 * r.get_score() for r in found.task_results})
    print(mteb.mock_run(encoder).to_markdown())  # mteb's own check of an encoder

``mteb.evaluate`` keeps its results below ``~/.cache/mteb`` unless it has ``cache=None`` or
``cache=mteb.ResultCache(folder)``. Importing mteb makes that folder, empty (the environment
variable ``MTEB_CACHE`` names another), and sets the seed of the global random generators, and so
does every task that is made.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isotrope.core.errors import InputError, MissingExtra
from isotrope.core.fingerprint import fingerprint
from isotrope.data.text.sts_sets import Subset
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.embed import Encoder, embed, encoder_name
from isotrope.evaluation.sts import load_tasks

try:
    from mteb import TaskMetadata
    from mteb.abstasks import AbsTaskSTS
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import get_prompt_name
    from mteb.models.model_meta import ScoringFunction
    from mteb.similarity_functions import cos_sim, pairwise_cos_sim
    from mteb.types import Array, PromptType
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "mteb", extra="mteb") from error

# short, mixed, and longer than most models take: what tells two encoders apart
_PROBE = ("Isotropy", "the same in ALL directions, 1 to 10; naïve?", "again and again " * 300)


class MTEBEncoder:
    """Gives an encoder the interface of mteb's ``EncoderProtocol``; similarity is the cosine.

    Texts reach the encoder unchanged. A task for which the model has a prompt (for the task, its
    type, queries or documents) is refused, because prompts are not added here.

    Args:
        encoder: our SentenceEncoder, or anything else with ``encode``.
        name: Name in mteb's results, ``organization/model``; by default ``isotrope/`` followed by
            the last part of the encoder's own name.

    Attributes:
        mteb_model_meta: The metadata that mteb stores with results. The revision is a fingerprint
            of the embeddings of a few texts, so cached results of two trainings of one model are
            never confused. Wrap an encoder again after more training.

    Raises:
        InputError: The encoder is not an encoder, or the name has no organization.
    """

    def __init__(self, encoder: Encoder, *, name: str | None = None) -> None:
        name = f"isotrope/{Path(encoder_name(encoder)).name}" if name is None else name
        if "/" not in name:
            raise InputError(f"mteb wants a name like organization/model; found {name!r}")
        probe = embed(encoder, _PROBE)
        self._encoder = encoder
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": name,
                "revision": fingerprint(probe),
                "embed_dim": probe.shape[1],
                "similarity_fn_name": ScoringFunction.COSINE,
                "use_instructions": False,
            }
        )

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        batch_size: int = 128,
        show_progress_bar: bool = False,
    ) -> np.ndarray:
        """Embed the texts of all batches.

        Returns:
            n x d, float32.
        """
        self._check_prompt(task_metadata, prompt_type)
        texts = [text for batch in inputs for text in batch["text"]]
        return embed(self._encoder, texts, batch_size=batch_size, progress=show_progress_bar)

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Return the cosines of all rows (n x d) with all others (m x d), n x m."""
        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Return the cosine of each row with the row of the same number (both n x d), n."""
        return pairwise_cos_sim(embeddings1, embeddings2)

    def _check_prompt(self, task: TaskMetadata, prompt_type: PromptType | None) -> None:
        if not isinstance(self._encoder, SentenceEncoder):
            return
        prompts = self._encoder.model.prompts
        chosen = get_prompt_name(prompts, task, prompt_type)
        if chosen is not None and prompts[chosen] != self._encoder.prompt:
            raise InputError(
                f"{self._encoder.name} has a prompt {chosen!r} for {task.name}, but this wrapper "
                "adds no prompts; give mteb the SentenceTransformer itself: encoder.model"
            )


class _LocalSTS(AbsTaskSTS):
    """One STS task of mteb over scored pairs in memory: one correlation over all of them."""

    split: str
    columns: Mapping[str, Any]

    def load_data(self, num_proc: int | None = None, **options: object) -> None:
        """Make the table that mteb reads; nothing is loaded, and the arguments are not used."""
        from datasets import Dataset, DatasetDict

        table = DatasetDict({self.split: Dataset.from_dict(dict(self.columns))})
        self.dataset = {self.metadata.revision: table}
        self.data_loaded = True


def local_sts(data: Path | str | Mapping[str, Sequence[Subset]]) -> list[AbsTaskSTS]:
    """Make mteb tasks of local STS sets.

    Their ``cosine_spearman``, times 100, equals the unrounded score of ``isotrope.evaluate`` (to
    0.0001, because of nearly equal cosines). Each year is one correlation over all its pairs; STS-B
    and SICK-R use their test split, your own file all its pairs. mteb's results call them
    ``local-STS12`` and so on.

    Args:
        data: the folder of the seven tasks, a file of scored pairs, or subsets by name of task,
            as ``load_sts`` returns them. Without a test split, all subsets are taken.
    """
    sets = load_tasks(Path(data)) if isinstance(data, (Path, str)) else data
    tasks = []
    for name, subsets in sets.items():
        used = [subset for subset in subsets if subset.split == "test"] or list(subsets)
        if not used:
            raise InputError(f"the task {name!r} has no subsets; leave it out")
        tasks.append(_task(name, used))
    return tasks


def _task(name: str, subsets: Sequence[Subset]) -> _LocalSTS:
    """Return a task of a class of its own: after unloading, mteb reads the class's attributes."""
    score = np.concatenate([subset.scores for subset in subsets])
    columns = {
        "sentence1": [text for subset in subsets for text in subset.first],
        "sentence2": [text for subset in subsets for text in subset.second],
        "score": score,
    }
    split = subsets[0].split
    # mteb takes a kept result for other data too, unless one of its subsets is missing there: so
    # the only subset is named after the data
    revision = fingerprint(columns)
    metadata = TaskMetadata(
        name=f"local-{name}",  # mteb has tasks with the names of the seven
        description=f"{len(score)} scored pairs of sentences on this machine.",
        type="STS",
        main_score="cosine_spearman",
        eval_splits=[split],
        eval_langs={revision: ["und"]},  # nothing here knows the language
        dataset={"path": f"local/{name}", "revision": revision},
    )
    about = {
        "metadata": metadata,
        "split": split,
        "columns": columns,
        "min_score": int(np.floor(score.min())),
        "max_score": int(np.ceil(score.max())),
    }
    made: _LocalSTS = type("LocalSTS", (_LocalSTS,), about)()
    return made
