"""A covariance of the features of a network: k(phi(x), phi(x')), a deep kernel.

Wilson, Hu, Salakhutdinov & Xing, "Deep Kernel Learning" (2016). Inducing inputs Z are features, so

    Kuu = k(Z, Z)       Kuf = k(Z, phi(X))      kff = k(phi(x_n), phi(x_n))

and each reverse rule applies that of k, which gives phi_bar, then that of the network.
"""

from typing import Any

from ..records import plus, record, replace, restricted, tree_map
from ..records.inducing_sets import sets_of
from .base import ALL, Covariance, check_part, need_of, needs_fields, zeros_like
from .features import Mapped
from .network import Network


@record
class OnFeatures(Covariance):
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
    >>> deep = fs.OnFeatures(fs.RBF(1.0, np.ones(2)), fs.Network.random((1, 16, 2), rng=0))
    >>> deep.blocks(np.zeros((5, 2)), np.linspace(0, 1, 4)[:, None]).Kuf.shape
    (5, 4)
    """

    covariance: Any
    network: Network

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
                "OnFeatures: `network` must be a fastsvgp.Network, got"
                f" {type(self.network).__name__}"
            )
        self.network.check_shapes("OnFeatures.network")

    # --- one forward and backward pass through the network for all blocks ---

    def inner(self, X):
        """``(k, phi, forward)``: k, features (N, F), and residuals for ``inner_vjp``."""
        forward = self.network.forward(X)
        return self.covariance, forward.features, forward

    def inner_need(self, need):
        """Translate ``need`` for k: "X" is phi."""
        own = need_of(need, "covariance")
        return (*own, "X") if "X" not in own and _of_network(need) else own

    def inner_vjp(self, features_bar, forward, need):
        """Cotangents ``(network_bar, X_bar)`` from the cotangent of phi."""
        network_need = ("network",) * bool(_of_network(need)) + ("X",) * ("X" in need)
        if features_bar is None or not network_need:
            return None, None
        return self.network.vjp(features_bar, forward, network_need)

    def outer_bar(self, covariance_bar, network_bar, need, like):
        """Combine the cotangents of k and the network; zeros if needed and None.

        None if ``need`` has no field.
        """
        if not needs_fields(need):
            return None
        if covariance_bar is None:
            k, needed = self.covariance, needs_fields(need_of(need, "covariance"))
            covariance_bar = zeros_like(k, like) if needed else tree_map(lambda leaf: None, k)
        names = _of_network(need)
        if network_bar is None:
            network_bar = zeros_like(self.network, like)
        if "" not in names:
            network_bar = restricted(network_bar, names)
        return replace(self, covariance=covariance_bar, network=network_bar)

    def _back(self, bars, forward, need):
        """``(covariance_bar, inducing_bar, X_bar)`` from the cotangents of k and phi."""
        covariance_bar, *inducing_bar, features_bar = bars
        network_bar, X_bar = self.inner_vjp(features_bar, forward, need)
        covariance_bar = self.outer_bar(covariance_bar, network_bar, need, forward.features)
        return covariance_bar, *inducing_bar, X_bar

    def features(self, num, seeds, columns):
        def forward(X):
            forward = self.network.forward(X)
            return forward.features, forward

        def back(features_bar, forward):
            return self.network.vjp(features_bar, forward, ("X",))[1]

        part = self.covariance.features(num, seeds, self.network.num_features)
        width = sum(map(len, self.network.weights)) + self.network.num_features
        return Mapped(part, forward, back, width)

    # --- blocks ---

    def Kuu(self, inducing, other=None):
        """Covariances of values at inducing features, (M, M); with ``other``, (M, M')."""
        return self.covariance.matrix(inducing, other)

    def Kuu_vjp(self, K_bar, K, inducing, other=None, need=("covariance", "inducing", "other")):
        """Cotangents ``(covariance_bar, inducing_bar, other_bar)`` of ``Kuu``."""
        covariance_bar, *inducing_bars = self.covariance.Kuu_vjp(
            K_bar, K, inducing, other, need_of(need, "covariance")
        )
        return self.outer_bar(covariance_bar, None, need, inducing), *inducing_bars

    def Kuf(self, inducing, X):
        """Covariances (M, N) of values at inducing features and the function at X."""
        return self.covariance.matrix(inducing, self.network(X))

    def Kuf_vjp(self, K_bar, K, inducing, X, need=("covariance", "inducing", "X")):
        """Cotangents ``(covariance_bar, inducing_bar, X_bar)`` of ``Kuf``."""
        k, features, forward = self.inner(X)
        bars = k.Kuf_vjp(K_bar, K, inducing, features, self.inner_need(need))
        return self._back(bars, forward, need)

    def diag(self, X):
        return self.covariance.diag(self.network(X))

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        k, features, forward = self.inner(X)
        return self._back(k.diag_vjp(k_bar, features, self.inner_need(need)), forward, need)

    def matrix(self, X1, X2=None):
        return self.covariance.matrix(self.network(X1), None if X2 is None else self.network(X2))

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        inner = [None if X is None else self.network.forward(X) for X in (X1, X2)]
        first, second = (None if one is None else one.features for one in inner)
        rows = ("X1", "X2")[: 1 if X2 is None else 2] if _of_network(need) else ()
        own = tuple({*need_of(need, "covariance"), *rows})
        covariance_bar, *bars = self.covariance.matrix_vjp(K_bar, K, first, second, own)
        network_bar, X_bars = None, []
        for name, bar, forward in zip(("X1", "X2"), bars, inner, strict=True):
            words = tuple("X" if word == name else word for word in need)
            below, X_bar = self.inner_vjp(bar, forward, words)
            network_bar = plus(below, network_bar)
            X_bars.append(X_bar)
        return self.outer_bar(covariance_bar, network_bar, need, first), *X_bars

    def blocks(self, Z, X, full_cov=False):
        return self.covariance.blocks(Z, self.network(X), full_cov)

    def blocks_vjp(self, blocks_bar, blocks, inducing, X, need=("covariance", "inducing")):
        k, features, forward = self.inner(X)
        bars = k.blocks_vjp(blocks_bar, blocks, inducing, features, self.inner_need(need))
        return self._back(bars, forward, need)


def _of_network(need):
    """Names of leaves of the network in ``need``, relative to the network; "" stands for all."""
    roots = (name.partition(".") for name in need_of(need, "network"))
    return tuple(rest for root, _, rest in roots if root == "covariance")
