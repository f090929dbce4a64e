"""Functions drawn from models with a site per datum, and from models in weight space."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import check, kernels, models
from ..bounds.layer_pass import LayerParts
from ..bounds.svgp import SVGP
from ..qsgp.bases import InducingBasis, RandomFourier
from ..qsgp.model import QSGP, check_parts
from ..sites.site_svgp import SiteSVGP, check_site_model, tie_sites
from ..sites.vgp import VGP, DataSites
from .draws import Draws, draw_layer
from .layer_paths import KernelTerm, LayerPaths
from .sample import FUNCTIONS, check_paths, functions_of_svgp


@dataclass(frozen=True)
class SiteOptions:
    """Option of ``sample_paths`` for models with a site per datum.

    Parameters
    ----------
    site_inputs : (N, D) array
        The inputs of the sites.
    """

    site_inputs: Any = None


def functions_of_sites(model, draws, site_inputs=None):
    """Draw as for an SVGP, from the q(u) of the sites."""
    with naming_site_inputs(model, site_inputs):
        given = tie_sites(model, site_inputs, jitter=draws.jitter)
    return functions_of_svgp(given, draws)


def functions_of_vgp(model, draws, site_inputs=None):
    """Draw as for an SVGP.

    Positive sites are observations, and need no jitter: N^3 / 3 flops per output and those of
    ``DataSites``. Otherwise the functions are those of ``tie_sites``.
    """
    with naming_site_inputs(model, site_inputs):
        given, X, _, _ = check_site_model(model, site_inputs, check.ABSENT, draws.jitter)
    if not bool((given.sites.lambda2 > 0).all()):
        return functions_of_svgp(tie_sites(model, X), draws)
    layer = LayerParts(given.covariance, DataSites(given, X), X.copy(), given.mean)
    draws.begin(given, X.dtype)
    outputs = given.sites.lambda1.shape[:-1]
    return draw_layer(layer, draws, outputs, columns=X.shape[1]), given


@contextmanager
def naming_site_inputs(model, site_inputs):
    """Refuse None; in the errors of other functions, which call them ``X``, name them."""
    if site_inputs is None:
        raise TypeError(
            f"sample_paths: a {type(model).__name__} has a site for each row of data: give the"
            " inputs of the data, sample_paths(model, site_inputs=X)"
        )
    try:
        yield
    except (TypeError, ValueError) as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (error.args[0].replace("`X`", "`site_inputs`"), *error.args[1:])
        raise


def paths_of_weights(model, num_paths=1, *, num_features=None, frequencies=None, rng=None):
    """Draw as for an SVGP: weights of the basis functions, from their q.

    2 (k + 1) m flops per function. The functions of ``sample_f`` with the same ``rng``. The basis
    has its functions, so the two other options are refused.
    """
    for name, value in (("num_features", num_features), ("frequencies", frequencies)):
        if value is not None:
            raise TypeError(
                f"sample_paths: `{name}` is for features of a covariance, and the basis of a QSGP"
                " has its functions: leave it out"
            )
    draws = Draws(num_paths, 2, "own", rng, None)
    check_parts(model)
    model, dtype = check.parameters(model)
    basis, q, k = model.basis, model.posterior, model.basis.covariance
    basis.check_settings()
    if isinstance(basis, RandomFourier):
        basis.check_columns(*(np.shape(getattr(k, "lengthscales", 1.0)) or (1,)))
    elif isinstance(basis, InducingBasis):
        Z = basis.inducing
        basis.check_columns(Z.shape[1])
    else:
        raise TypeError(
            f"sample_paths: a basis {type(basis).__name__} has no paths: draw joint values with"
            " sample_f"
        )
    q.check_size(basis.num_functions())
    draws.begin(model, dtype)
    noise = draws.normal(draws.count, len(q.mean))
    W = (q.mean + kernels.chevron_multiply(q.columns, q.diagonal, noise))[:, None]
    if isinstance(basis, InducingBasis):
        return check_paths(LayerPaths(k, (KernelTerm(Z, W, at_data=True),)), model)
    settings = {"num_features": basis.num_features, "seeds": int(basis.seed)}
    return check_paths(LayerPaths(k, (), W, **settings), model)


FUNCTIONS |= {SiteSVGP: functions_of_sites, VGP: functions_of_vgp}
for kind in (SiteSVGP, VGP):
    models.share(kind, SVGP, "sample_paths", options=SiteOptions)
models.register(QSGP, sample_paths=paths_of_weights)
