"""A trained model as OpenVINO reads it: needs ``sentence-transformers[openvino]`` beside isotrope.

No file in requirements/ has these packages, because they need a transformers below 5.6.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from isotrope.training.fit_text import fit
from tests.training.conftest import QUICK, sentences


# it traces the model, and says what tracing leaves out
@pytest.mark.filterwarnings("default")
def test_the_embeddings_are_the_same(tmp_path: Path) -> None:
    pytest.importorskip("optimum.intel")
    texts = sentences(40)
    (tmp_path / "corpus.txt").write_text("\n".join(texts))
    settings: dict[str, Any] = {**QUICK, "max_steps": 2, "output": str(tmp_path / "run")}
    model = str(fit(str(tmp_path / "corpus.txt"), **settings).output / "model")
    exported = SentenceTransformer(model, backend="openvino", device="cpu")
    exported.save_pretrained(str(tmp_path / "exported"))
    again = SentenceTransformer(str(tmp_path / "exported"), backend="openvino", device="cpu")
    plain = SentenceTransformer(model, device="cpu").encode(texts)
    # float32, in another order of operations (2.4e-7 seen)
    np.testing.assert_allclose(again.encode(texts), plain, atol=2e-6)
