"""The curvature of a loss: products of its Hessian, Lanczos, the spectrum and what it says.

``product`` says which Hessian is meant. A process of 100 products finds the ends of the spectrum
and how the rest lies:

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
