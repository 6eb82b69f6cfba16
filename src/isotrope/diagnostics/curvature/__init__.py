"""The curvature of a loss: Hessian-vector products, the Lanczos process and the Hessian's spectrum.

``product`` defines which Hessian is multiplied. A process of 100 products finds the extreme
eigenvalues and estimates the density between them:

    hessian = parameter_hessian(objective, lambda: Views(net(x), net(y)), net)
    spectrum = Spectrum.of(hessian, [Lanczos(hessian).run(100)])
    print(spectrum.step(learning_rate))
    print(spectrum.verdict())
"""

from isotrope.diagnostics.curvature.density import density, grid
from isotrope.diagnostics.curvature.lanczos import Lanczos, Ritz
from isotrope.diagnostics.curvature.product import Hessian, embedding_hessian, parameter_hessian
from isotrope.diagnostics.curvature.spectrum import Spectrum

__all__ = [
    "Hessian",
    "Lanczos",
    "Ritz",
    "Spectrum",
    "density",
    "embedding_hessian",
    "grid",
    "parameter_hessian",
]
