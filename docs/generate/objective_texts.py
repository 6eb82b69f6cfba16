r"""Texts that the page of an objective adds to its docstring: the formula as TeX, and its use.

Letters are those of docs/notation.md: h and h' the two views, s similarities, theta angles, d
distances, tau a temperature, m a margin. The docstrings have the same formulas as plain text.
"""

_SOFTMAX = r"-\log\frac{e^{s_{ii'}/\tau}}{e^{s_{ii'}/\tau} + \sum_{j \ne i} e^{s_{ij'}/\tau}"
_CUT_BARLOW = (
    r"L_i = d_i \Big( \sum_{j \ne i} w_{ij}\, h_i^\top h_j"
    r" - r \sum_{j \ne i} w_{ij}\, h_i^\top h'_i \Big)"
)

FORMULAS = {
    "alignuniform": r"L = (1 - \lambda)\, \frac{1}{N} \sum_i \lVert h_i - h'_i \rVert^\alpha"
    r" + \lambda \log \frac{1}{N(N-1)} \sum_{i \ne j} e^{-t \lVert h_i - h'_j \rVert^2}",
    "arccon": r"L_i = -\log\frac{e^{\cos(\theta_{ii'} + u)/\tau}}"
    r"{e^{\cos(\theta_{ii'} + u)/\tau} + \sum_{j \ne i} e^{s_{ij'}/\tau}}",
    "barlowtwins": r"L = \sum_k (C_{kk} - 1)^2 + \nu \sum_{k \ne l} C_{kl}^2,"
    r"\qquad C = \frac{1}{N} \sum_i h_i h_i'^\top",
    "barlowtwinsgrad": r"L_i = -\frac{2}{N}\, h_i^\top A\, h'_i"
    r" + \nu \sum_{j \ne i} \frac{2\, h_i'^\top h'_j}{N^2}\, h_i^\top h_j",
    "dcl": r"L_i = -\frac{s_{ii'}}{\tau} + \log \sum_{j \ne i} e^{s_{ij'}/\tau}",
    "dclplus": r"L_i = \max\Big(0,\; -\frac{s_{ii'}}{\tau}"
    r" + \log \sum_{j \ne i} e^{s_{ij'}/\tau}\Big)",
    "dclw": r"L_i = -w_i \frac{s_{ii'}}{\tau} + \log \sum_{j \ne i} e^{s_{ij'}/\tau},"
    r"\qquad w_i = 2 - N \frac{e^{s_{ii'}/\sigma}}{\sum_k e^{s_{kk'}/\sigma}}",
    "dino": r"L_i = -\sum_k \mathrm{softmax}(z'_i / \tau_t)_k\,"
    r" \log \mathrm{softmax}(z_i / \tau)_k",
    "infonce": "L_i = " + _SOFTMAX + "}",
    "mat": r"L_i = \max\big(0,\; m + \theta_{ii'} - \min_{k \ne i} \theta_{ik'}\big)",
    "met": r"L_i = \max\big(0,\; m + d_{ii'} - \min_{k \ne i} d_{ik'}\big),"
    r"\qquad d = \sqrt{2 - 2 s}",
    "mhe": r"L = \frac{1}{N} \sum_i \lVert h_i - h'_i \rVert^2"
    r" + \nu \log \frac{2}{N(N-1)} \sum_{k < l} e^{-t \lVert h_k - h_l \rVert^2}",
    "mhs": r"L_i = \lVert h_i - h'_i \rVert^2 - \nu \min_{j \ne i} \lVert h_i - h_j \rVert",
    "miov1": r"L_i = \log\big(1 + e^{-s_{ii'}/\tau}\big)"
    r" + \mathrm{mean}_j \log\big(1 + e^{s_{ij}/\tau}\big)",
    "miov2": r"L_i = -\frac{s_{ii'}}{\tau} + \mathrm{mean}_j \log\big(1 + e^{s_{ij}/\tau}\big)",
    "miov3": r"L_i = -\frac{s_{ii'}}{\tau} + \mathrm{mean}_j\, e^{s_{ij}/\tau}",
    "mixcse": "L_i = " + _SOFTMAX + r" + e^{h_i^\top v_i/\tau}},"
    r"\qquad v_i = \frac{\lambda h'_i + (1 - \lambda) h'_{i+1}}{Z_i}",
    "mixedinfonce": "L_i = " + _SOFTMAX + r" + e^{h_i^\top v_i/\tau}},"
    r"\qquad v_i = \frac{\lambda h'_g + (1 - \lambda) h'_a}{Z_i}",
    "modifiedbarlowtwins": _CUT_BARLOW,
    "modifiedmhe": r"L_i = d_i \sum_{j \ne i} W_{ij} \big(h_i^\top h_j - r\, h_i^\top h'_i\big)",
    "modifiedmhs": r"L_i = d_i\, W_{ij} \big(h_i^\top h_j - r\, h_i^\top h'_i\big)",
    "modifiedvicreg": _CUT_BARLOW,
    "mpt": r"L_i = \max\big(0,\; m - s_{ii'} + \max_{k \ne i} s_{ik'}\big)",
    "negativecosine": r"L_i = -h_i^\top h'_i",
    "ntxent": r"L_i = -\log\frac{e^{s_{ii'}/\tau}}"
    r"{e^{s_{ii'}/\tau} + \sum_{j \ne i} \big(e^{s_{ij'}/\tau} + e^{s_{ij}/\tau}\big)}",
    "paradigm": r"L_i = GD_i \sum_j W_{ij} \big(h_i^\top x_j - R_i\, h_i^\top h'_i\big)",
    "simclrgrad": r"L_i = \frac{1}{\tau} \Big( \sum_j p_{ij}\, h_i^\top x_j"
    r" - (1 - p_i)\, h_i^\top h'_i \Big)",
    "unigrad": r"L_i = -h_i^\top h'_i + \nu\, h_i^\top F h_i,"
    r"\qquad F = \frac{1}{2N} \sum_j \big(h_j h_j^\top + h'_j h_j'^\top\big)",
    "vicreg": r"L = \frac{\lambda}{N} \sum_i \lVert h_i - h'_i \rVert^2"
    r" + \nu_1 \big(v(H) + v(H')\big) + \nu_2 \big(c(H) + c(H')\big)",
    "vicreggrad": r"L_i = -\frac{2}{N}\, h_i^\top h'_i"
    r" + \nu \sum_{j \ne i} \frac{2\, h_i^\top h_j}{N^2}\, h_i^\top h_j",
}

_MODIFIED = (
    "Use it for sentences if the encoder was pretrained but not yet trained on pairs, like BERT. "
    "Add the preset for your encoder. If the encoder was already trained on pairs, use `infonce`: "
    "in our measurements, `infonce` raised the scores of such encoders more."
)
_TRIPLET = (
    "Use it for sentences if the encoder was pretrained but not yet trained on pairs, like BERT. "
    "The loss pushes only the nearest negative. Do not use it for an encoder with random weights: "
    "all embeddings can become equal (collapse)."
)
_VIEWS = (
    "Use it on images, as its authors do. It compares each anchor with both views of the other "
    "images; `infonce` compares each anchor with only one view of them. Large batches therefore "
    "need more time and memory than with `infonce`."
)
_GRADIENT = (
    "Use it only to compare gradients, in trainings or in measurements. The loss was built so that "
    "its gradient is {gradient}. The idea is from Tao et al. (2022)."
)

USES = {
    "alignuniform": "Use it to weigh alignment (positives are near) against uniformity (embeddings "
    "are spread out). In many epochs on the same sentences, `alignuniform` overfits. Keep `--dev`, "
    "which saves the model with the best held-out score.",
    "arccon": "Use it for sentences in place of `infonce` if the encoder was not yet trained on "
    "pairs. The added angle brings positives closer to their anchors.",
    "barlowtwins": "Use it on images. On sentences, use `modifiedbarlowtwins` or `infonce`, "
    "because `barlowtwins` never stops pushing. `--method barlowtwins` sets `space` and `weight` "
    "to the values of the paper.",
    "barlowtwinsgrad": _GRADIENT.format(
        gradient="that of Barlow Twins ([`barlowtwins`](barlowtwins.md))"
    ),
    "dcl": "Use it for small batches: with few negatives, the gradient of `infonce` fades early, "
    "and the gradient of `dcl` never fades. With many epochs on the same sentences, `dcl` "
    "overfits. Keep `--dev`, which saves the model with the best held-out score.",
    "dclplus": "Use it in place of `dcl` if `dcl` overfits: with `dclplus`, an anchor has no "
    "gradient once its loss reaches 0.",
    "dclw": "Use it in place of `dcl` on images, to give more weight to positives that are still "
    "far from their anchors.",
    "dino": "Use it only with `isotrope train-images --method dino`, because it does not compare "
    "embeddings: it compares the logits of a student network with the logits of a teacher network.",
    "infonce": "Use it first: for single texts, for pairs, and with hard negatives. "
    "Its name in sentence-transformers is `MultipleNegativesRankingLoss`.",
    "mat": _TRIPLET,
    "met": _TRIPLET,
    "mhe": "Use it to study hyperspherical energy, which is low if the embeddings are spread "
    "evenly over the sphere. To train on sentences, use `modifiedmhe`: in "
    "our measurements, `mhe` lowered the STS score of the encoder.",
    "mhs": "Use it to study hyperspherical separation, the distance of an embedding from its "
    "nearest neighbour on the sphere. You can also train sentence encoders with it. Start from an "
    "encoder that was not yet trained on pairs: add `--encoder bert-base-uncased` to the command. "
    "Keep `--dev`, which saves the model with the best held-out score.",
    "miov1": _VIEWS,
    "miov2": _VIEWS,
    "miov3": "Use it on images. In our measurements it was as good as [`ntxent`](ntxent.md).",
    "mixcse": "Use it if your negatives are too easy. It adds a hard negative for each anchor: "
    "a mixture of two embeddings, that of the positive and that of another text.",
    "mixedinfonce": "Use it if your negatives are too easy. It adds a hard negative for each "
    "anchor: a mixture of the embeddings of the two hardest negatives in the batch.",
    "modifiedbarlowtwins": _MODIFIED,
    "modifiedmhe": _MODIFIED,
    "modifiedmhs": _MODIFIED,
    "modifiedvicreg": _MODIFIED,
    "mpt": _TRIPLET,
    "negativecosine": "Use it only with `--method byol` or `--method simsiam`. It does not push "
    "embeddings apart. Only the predictor and the stopped gradient of these methods keep "
    "all embeddings from becoming equal (collapse).",
    "ntxent": "Use it for pairs of texts, where it is the default of `isotrope train`, and for "
    "images with `--method simclr`. It compares each anchor with both texts of the other "
    "pairs; `infonce` compares each anchor with only one of these texts. Large batches therefore "
    "need more time and memory than with `infonce`.",
    "paradigm": "Use it to build an objective from three components of the gradient: dissipation, "
    "weight and ratio. `isotrope objectives` lists the components that you can choose. The default "
    "dissipation is always 1, the default weights are a softmax over the negatives, and the "
    "default ratio is 1.",
    "simclrgrad": _GRADIENT.format(
        gradient="that of NT-Xent ([`ntxent`](ntxent.md)), without the part that an anchor gets "
        "from the losses of other anchors"
    ),
    "unigrad": "Use it to study what the objectives of MoCo, BYOL and Barlow Twins have in common "
    "(Tao et al., 2022).",
    "vicreg": "Use it on images. On sentences, use `modifiedvicreg`, because `vicreg` never stops "
    "pushing.",
    "vicreggrad": _GRADIENT.format(
        gradient="the one that Li et al. (2024) print for VICReg ([`vicreg`](vicreg.md)), without "
        "centring and without the hinge on standard deviations"
    ),
}

_IMAGES = "isotrope train-images photos/ --method"

TRAIN = {
    "barlowtwins": f"{_IMAGES} barlowtwins --output runs/barlowtwins",
    "dino": f"{_IMAGES} dino --output runs/dino",
    "negativecosine": f"{_IMAGES} byol --output runs/byol",
    "vicreg": f"{_IMAGES} vicreg --output runs/vicreg",
    **{
        name: f"{_IMAGES} simclr --objective {name} --output runs/{name}"
        for name in ("dclw", "miov1", "miov2", "miov3")
    },
    "paradigm": "isotrope train pairs.tsv --objective paradigm --dev auto --output runs/mine \\\n"
    "    --objective.dissipation margin:0.3 --objective.weight softmax:0.05 --objective.ratio 1.5",
}
"""The command that trains with an objective, where it is not ``isotrope train pairs.tsv``."""

FOR_BERT = {name for name, use in USES.items() if use in (_MODIFIED, _TRIPLET)}
"""The objectives whose command trains BERT with its preset, because their use is for BERT."""
