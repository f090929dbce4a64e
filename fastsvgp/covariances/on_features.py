"""A covariance of the features of a network: k(phi(x), phi(x')), a deep kernel.

Wilson, Hu, Salakhutdinov & Xing, "Deep Kernel Learning" (2016). Inducing inputs Z are features, so

    Kuu = k(Z, Z)       Kuf = k(Z, phi(X))      kff = k(phi(x_n), phi(x_n))

and each reverse rule applies that of k, which gives phi_bar, then that of the network.
"""

from typing import Any

from ..records import record, restricted
from ..records.inducing_sets import sets_of
from .base import need_of
from .checks import check_part
from .mapped import OfMap
from .network import Network


@record
class OnFeatures(OfMap):
    """Deep kernel k(phi(x), phi(x')), phi the features of a network; inducing inputs are features.

    Parameters
    ----------
    covariance : Covariance
        Covariance k of F features; can be a sum or product.
    network : Network
        Network from D inputs to F features.

    Notes
    -----
    A pass computes the features once per row and runs one backward pass through the network. The
    variance of k and the scale of the last weights are separate parameters, but lengthscales of k
    and columns of the last weights scale the same features.

    Examples
    --------
    >>> deep = fs.covariances.OnFeatures(fs.RBF(1.0, np.ones(2)),
    ...     fs.covariances.Network.random((1, 16, 2), rng=0))
    >>> deep.blocks(np.zeros((5, 2)), np.linspace(0, 1, 4)[:, None]).Kuf.shape
    (5, 4)
    """

    covariance: Any
    network: Network
    part_field, map_field = "covariance", "network"

    # --- shapes ---

    @property
    def columns_of(self):
        return "`covariance.network.weights.0`"

    def num_columns(self, inducing):
        """D. Raise ``ValueError`` unless inducing inputs have one column per feature."""
        self._check_network()
        columns, F = sets_of(inducing)[0].shape[1], self.network.num_features
        if columns != F:
            raise ValueError(
                f"`inducing` has {columns} columns, but the network has {F} features; inducing"
                " inputs are features: start from covariance.network(X)"
            )
        return self.network.num_columns

    def check_dim(self, D):
        self._check_network()
        if D != self.network.num_columns:
            raise ValueError(
                f"OnFeatures: `network.weights.0` has {self.network.num_columns} rows, but the"
                f" inputs have D = {D} columns"
            )
        F = self.network.num_features
        check_part("OnFeatures.covariance", self.covariance, F, "features of a network")

    def _check_network(self):
        if not isinstance(self.network, Network):
            raise TypeError(
                "OnFeatures: `network` must be a fastsvgp.covariances.Network, got"
                f" {type(self.network).__name__}"
            )
        self.network.check_shapes("OnFeatures.network")

    # --- one forward and backward pass through the network for all blocks ---

    def inner(self, X):
        forward = self.network.forward(X)
        return self.covariance, forward.features, forward

    def inner_need(self, need):
        own = need_of(need, "covariance")
        return (*own, "X") if "X" not in own and _network_need(need) else own

    def inner_vjp(self, features_bar, forward, need):
        names = _network_need(need)
        network_need = ("network",) * bool(names) + ("X",) * ("X" in need)
        if features_bar is None or not network_need:
            return None, None
        network_bar, X_bar = self.network.vjp(features_bar, forward, network_need)
        if names and "" not in names:
            network_bar = restricted(network_bar, names)
        return network_bar, X_bar

    outer_bar = OfMap.outer

    def map(self, X, origin):
        forward = self.network.forward(X)
        return forward.features, lambda bar, need: self.inner_vjp(bar, forward, need)

    def _back(self, bars, forward, need):
        covariance_bar, *inducing_bar, features_bar = bars
        network_bar, X_bar = self.inner_vjp(features_bar, forward, need)
        covariance_bar = self.outer_bar(covariance_bar, network_bar, need, forward.features)
        return covariance_bar, *inducing_bar, X_bar

    def sizes(self, columns):
        F = self.network.num_features
        return F, sum(map(len, self.network.weights)) + F

    # --- blocks ---

    def Kuu(self, inducing, other=None):
        return self.covariance.matrix(inducing, other)

    def Kuu_vjp(self, K_bar, K, inducing, other=None, need=("covariance", "inducing", "other")):
        covariance_bar, *inducing_bars = self.covariance.Kuu_vjp(
            K_bar, K, inducing, other, need_of(need, "covariance")
        )
        return self.outer_bar(covariance_bar, None, need, inducing), *inducing_bars

    def Kuf(self, inducing, X):
        return self.covariance.matrix(inducing, self.network(X))

    def Kuf_vjp(self, K_bar, K, inducing, X, need=("covariance", "inducing", "X")):
        k, features, forward = self.inner(X)
        bars = k.Kuf_vjp(K_bar, K, inducing, features, self.inner_need(need))
        return self._back(bars, forward, need)

    def blocks(self, Z, X, full_cov=False):
        return self.covariance.blocks(Z, self.network(X), full_cov)

    def blocks_vjp(self, blocks_bar, blocks, inducing, X, need=("covariance", "inducing")):
        k, features, forward = self.inner(X)
        bars = k.blocks_vjp(blocks_bar, blocks, inducing, features, self.inner_need(need))
        return self._back(bars, forward, need)


def _network_need(need):
    """Names of leaves of the network in ``need``, relative to the network; "" stands for all."""
    roots = (name.partition(".") for name in need_of(need, "network"))
    return tuple(rest for root, _, rest in roots if root == "covariance")
