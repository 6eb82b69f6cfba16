"""isotrope: fine-tune text and image embedding models, and see what a loss does to them.

``import isotrope`` loads no heavy library. A public name loads its own modules at its first use.
"""

from typing import TYPE_CHECKING

from isotrope.core import public

__version__ = "0.1.0"

if TYPE_CHECKING:
    from isotrope import objectives as objectives
    from isotrope.adapters.doctor import Doctor as Doctor
    from isotrope.core.autograd import softplus as softplus
    from isotrope.core.hyper import Hyper as Hyper
    from isotrope.core.hyper import Paper as Paper
    from isotrope.core.hyper import Preset as Preset
    from isotrope.core.hyper import Temperature as Temperature
    from isotrope.core.terms import Terms as Terms
    from isotrope.core.views import Views as Views
    from isotrope.diagnostics.target import diagnose as diagnose
    from isotrope.encoders import load as load
    from isotrope.evaluation import evaluate as evaluate
    from isotrope.evaluation import search as search
    from isotrope.evaluation.compare import compare as compare
    from isotrope.kernels.pairs import Pairs as Pairs
    from isotrope.paradigm import parts as parts
    from isotrope.paradigm.compose import Paradigm as Paradigm
    from isotrope.paradigm.decompose import decompose as decompose
    from isotrope.paradigm.objective import Objective as Objective
    from isotrope.training import fit as fit
    from isotrope.training import fit_images as fit_images
    from isotrope.verbs import audit as audit
    from isotrope.verbs import audit_images as audit_images
    from isotrope.verbs import report as report
    from isotrope.verbs import sweep as sweep

public(__name__)
