"""A trained model in other formats, by the backends of sentence-transformers that are installed."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from isotrope.training.fit_text import fit
from tests.training.conftest import QUICK, sentences

PACKAGES = {"openvino": "optimum.intel", "onnx": "optimum.onnxruntime"}


# they trace the model, and say what tracing leaves out
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backend", PACKAGES)
def test_the_embeddings_are_the_same(backend: Literal["openvino", "onnx"], tmp_path: Path) -> None:
    pytest.importorskip(PACKAGES[backend])
    texts = sentences(40)
    (tmp_path / "corpus.txt").write_text("\n".join(texts))
    settings: dict[str, Any] = {**QUICK, "max_steps": 2, "output": str(tmp_path / "run")}
    model = str(fit(str(tmp_path / "corpus.txt"), **settings).output / "model")
    exported = SentenceTransformer(model, backend=backend, device="cpu")
    exported.save_pretrained(str(tmp_path / "exported"))
    again = SentenceTransformer(str(tmp_path / "exported"), backend=backend, device="cpu")
    plain = SentenceTransformer(model, device="cpu").encode(texts)
    # float32, in another order of operations (2.4e-7 seen)
    np.testing.assert_allclose(again.encode(texts), plain, atol=2e-6)
