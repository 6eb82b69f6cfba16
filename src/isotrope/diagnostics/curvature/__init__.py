"""The curvature of a loss: Hessian-vector products, the Lanczos process and the Hessian's spectrum.

``product`` defines which Hessian is multiplied. A process of 100 products finds the extreme
eigenvalues and estimates the density between them:

    hessian = parameter_hessian(objective, lambda: Views(net(x), net(y)), net)
    process = Lanczos(hessian, gradient=hessian.gradient).run(100)
    spectrum = Spectrum.of(hessian, [process])
"""

from isotrope.diagnostics.curvature.density import density, grid
from isotrope.diagnostics.curvature.lanczos import Lanczos, Ritz
from isotrope.diagnostics.curvature.product import Hessian, embedding_hessian, parameter_hessian
from isotrope.diagnostics.curvature.spectrum import Compared, Direction, Spectrum, compare

__all__ = [
    "Compared",
    "Direction",
    "Hessian",
    "Lanczos",
    "Ritz",
    "Spectrum",
    "compare",
    "density",
    "embedding_hessian",
    "grid",
    "parameter_hessian",
]
