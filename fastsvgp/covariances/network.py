"""Neural networks whose features are the inputs of a covariance.

Layers l = 1 ... L - 1 have an activation a; the last layer is linear. With h_0 = X,

    h_l = a(h_{l-1} W_l + b_l)          phi = h_{L-1} W_L

Given the cotangent phi_bar (N, F), and a' as a function of h_l (tanh: 1 - h^2; relu: 1 for h > 0,
else 0),

    W_L_bar = h_{L-1}' phi_bar          h_{L-1}_bar = phi_bar W_L'
    z_l_bar = h_l_bar a'(h_l)           W_l_bar = h_{l-1}' z_l_bar      b_l_bar = 1' z_l_bar
    h_{l-1}_bar = z_l_bar W_l'          X_bar = h_0_bar
"""

from typing import Any, NamedTuple

import numpy as np

from ..check import generator
from ..kernels import matmul
from ..records import leaf, record, static

ACTIVATIONS = {  # in place, and its slope as a function of the result
    "tanh": (lambda z: np.tanh(z, out=z), lambda h: 1 - h * h),
    "relu": (lambda z: np.maximum(z, 0, out=z), lambda h: h > 0),
}


class Forward(NamedTuple):
    """Features of inputs, and residuals for the backward pass."""

    features: Any  # (N, F)
    inputs: tuple  # of each layer: X (N, D), then the hidden units (N, H)


@record
class Network:
    """A network of fully connected layers; the last layer is linear and has no bias.

    Parameters
    ----------
    weights : tuple of (D, H), (H, H'), ..., (H'', F)
        Weight matrices, from D inputs to F features.
    biases : tuple of (H,), (H',), ...
        Biases of the hidden layers: one fewer than ``weights``.
    activation : {"tanh", "relu"}
        Activation of the hidden units.

    Notes
    -----
    The forward pass costs 2 N flops per weight, the backward pass 4 N. The residuals take N numbers
    per hidden unit.

    Examples
    --------
    >>> network = fs.covariances.Network.random((3, 16, 2), rng=0)
    >>> [path for path, _, _ in fs.records.leaves(network)]
    ['weights.0', 'weights.1', 'biases.0']
    >>> network(np.zeros((5, 3))).shape
    (5, 2)
    """

    weights: tuple = leaf("tuple")
    biases: tuple = leaf("tuple", default=())
    activation: str = static(default="tanh")

    @classmethod
    def random(cls, sizes, activation="tanh", rng=None):
        """Initialise a network for training: normal weights with variance 1 / fan-in.

        Biases are zero, or uniform in [-1, 1] for "relu".

        Parameters
        ----------
        sizes : sequence of int
            Number of columns of X, of units of each hidden layer, and of features.
        activation : {"tanh", "relu"}
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        Network

        Raises
        ------
        ValueError, TypeError
            ``sizes`` has fewer than two numbers, or one below 1; the activation is unknown.

        Examples
        --------
        >>> fs.covariances.Network.random((3, 16, 2), rng=0).num_features
        2
        """
        sizes = tuple(sizes)
        whole = all(isinstance(size, (int, np.integer)) and size >= 1 for size in sizes)
        if len(sizes) < 2 or not whole:
            raise ValueError(
                f"Network.random: `sizes` must be at least two positive integers, got {sizes}; give"
                " columns of X, hidden units of each layer, features"
            )
        rng = generator(rng)
        weights = [
            rng.standard_normal((rows, columns)) / np.sqrt(rows)
            for rows, columns in zip(sizes, sizes[1:], strict=False)
        ]
        relu = activation == "relu"
        biases = [rng.uniform(-1, 1, n) if relu else np.zeros(n) for n in sizes[1:-1]]
        network = cls(tuple(weights), tuple(biases), activation=activation)
        network.check_shapes("Network.random")
        return network

    @property
    def num_columns(self):
        """D, the number of columns of X."""
        return np.shape(self.weights[0])[0]

    @property
    def num_features(self):
        """F, the number of features."""
        return np.shape(self.weights[-1])[1]

    def check_shapes(self, what):
        """Raise ``ValueError`` unless the layers fit together; ``what`` begins the message."""
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"{what}: `activation` must be 'tanh' or 'relu', got {self.activation!r:.40}"
            )
        if not isinstance(self.weights, tuple) or not self.weights:
            raise ValueError(f"{what}: `weights` must be a tuple of at least one matrix")
        shapes = [np.shape(W) for W in self.weights]
        for i, shape in enumerate(shapes):
            rows = shape[0] if not i else shapes[i - 1][-1]
            if len(shape) != 2 or shape[0] != rows or 0 in shape:
                raise ValueError(
                    f"{what}: `weights` have shapes {', '.join(map(str, shapes))}; each must be"
                    " (rows, columns), rows being the columns of the matrix before"
                )
        given = [np.shape(b) for b in self.biases] if isinstance(self.biases, tuple) else None
        wanted = [(columns,) for _, columns in shapes[:-1]]
        if given != wanted:
            raise ValueError(
                f"{what}: `biases` have shapes {given}; hidden layers need {wanted} (the last layer"
                " has none)"
            )

    def __call__(self, X):
        """Features (N, F) of inputs X (N, D)."""
        return self.forward(X).features

    def forward(self, X):
        """Compute ``Forward`` of inputs X (N, D)."""
        apply, _ = ACTIVATIONS[self.activation]
        inputs = [X]
        for W, b in zip(self.weights[:-1], self.biases, strict=True):
            z = matmul(inputs[-1], W)
            z += b
            inputs.append(apply(z))
        return Forward(matmul(inputs[-1], self.weights[-1]), tuple(inputs))

    def vjp(self, features_bar, forward, need=("network", "X")):
        """Cotangents ``(network_bar, X_bar)``; None if not in ``need``.

        features_bar : (N, F), not modified. forward : the ``Forward`` of the same inputs.

        With "network" in ``need``, all fields are computed.
        """
        _, slope = ACTIVATIONS[self.activation]
        h_bar, own = features_bar, "network" in need
        weight_bars, bias_bars = [], []
        for i in reversed(range(len(self.weights))):
            h = forward.inputs[i]
            if own:
                weight_bars.append(matmul(h, h_bar, transpose_a=True))
            if not i and "X" not in need:
                break
            h_bar = matmul(h_bar, self.weights[i], transpose_b=True)
            if i:
                h_bar *= slope(h)
                if own:
                    bias_bars.append(h_bar.sum(0, dtype=np.float64).astype(h_bar.dtype))
        network_bar = None
        if own:
            network_bar = type(self)(
                tuple(weight_bars[::-1]), tuple(bias_bars[::-1]), activation=self.activation
            )
        return network_bar, h_bar if "X" in need else None
