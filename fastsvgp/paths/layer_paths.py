"""Functions of one covariance: random features, and covariances with inducing variables.

Functions are records of weights. ``forward(X)`` returns the values (S, P, n) of S functions of P
outputs, and ``back(values_bar)``, which returns the cotangent of the points and can be called
again. Points X are (N, D), the same for all functions, or (S, n, D), own points of each: a chain of
layers evaluates the functions of a layer at the values of those below.

    f_s(x) = mean(x) + Phi_s(x) w_s + sum_t k(x, Z_t) v_st

Phi_s are the features of function s, w_s their weights, and v_st weights of the inducing variables
of term t. Products with k(X, Z) go in runs of points, so memory beside the results does not grow
with their number. Reverse, with f_bar (S, P, n),

    K_bar[m, i]     = sum_sp v[s, p, m] f_bar[s, p, i]       at shared points
    K_bar[m, s, i]  = sum_p  v[s, p, m] f_bar[s, p, i]       at own points

is the cotangent of Kuf, from which the covariance finds that of X; features have their own rule.

Source: Wilson et al., "Efficiently Sampling Functions from Gaussian Process Posteriors" (2020).
"""

import numpy as np

from .. import check, kernels
from ..covariances import Covariance
from ..covariances.features.points import as_rows, points_at, runs
from ..means import Mean
from ..records import leaf, plus, record, replace, static
from ..records.typed import Array, Record


def add_mean(values, mean, X, outputs):
    """Add a mean function, or None, to values (S, P, n) in place; return its pullback to X."""
    if mean is None:
        return lambda bar: None
    m = mean(as_rows(X))
    values += m if X.ndim == 2 else m.reshape(-1, *X.shape[:2]).swapaxes(0, 1)

    def back(bar):
        bar = bar.sum(axis=0) if X.ndim == 2 else bar.swapaxes(0, 1).reshape(bar.shape[1], -1)
        bar = np.ascontiguousarray(bar, like=bar).reshape(*outputs, -1)
        return mean.vjp(bar, as_rows(X), ("X",))[1].reshape(X.shape)

    return back


@record
class KernelTerm:
    """The functions k(x, Z) v.

    Parameters
    ----------
    inducing : (M, D) array, or a record
    weights : (S, P, M), or (1, P, M) for all functions
    at_data : bool
        Whether Z are inputs of the function itself. Static.
    """

    inducing: Array | Record
    weights: Array = leaf()
    at_data: bool = static(default=False)

    def num_columns(self, covariance):
        """Return D, the number of columns of x."""
        Z = self.inducing
        return Z.shape[1] if self.at_data else covariance.num_columns(Z)

    def _block(self, covariance, X):
        """Return k(Z, X), (M, N)."""
        return (covariance.Kff if self.at_data else covariance.Kuf)(self.inducing, X)

    def _block_vjp(self, covariance, K_bar, K, X):
        """Return the cotangent of X."""
        rule, name = (covariance.Kff_vjp, "other") if self.at_data else (covariance.Kuf_vjp, "X")
        return rule(K_bar, K, self.inducing, X, (name,))[2]

    def add_to(self, values, covariance, X):
        """Add the values at X in place; return k(Z, X), or None if it has several runs."""
        v, M, K, number = self.weights, self.weights.shape[-1], None, 0
        for functions, points in runs(X, M):
            K, number = self._block(covariance, points_at(X, functions, points)), number + 1
            if X.ndim == 2:
                part = kernels.matmul(v.reshape(-1, M), K).reshape(*v.shape[:2], -1)
            else:
                own = v if len(v) == 1 else v[functions]
                blocks = K.reshape(M, -1, K.shape[1] // len(values[functions]))
                part = kernels.matmul(own, blocks.swapaxes(0, 1))
            values[functions, :, points] += part
        return K if number == 1 else None

    def vjp(self, bar, covariance, X, K):
        """Return the cotangent of X; K is what ``add_to`` returned."""
        v, M, X_bar = self.weights, self.weights.shape[-1], np.empty_like(X)
        for functions, points in runs(X, M) if K is None else [(slice(None), slice(None))]:
            f_bar = bar[functions, :, points]
            if X.ndim == 2:
                f_bar = f_bar.sum(axis=0, keepdims=True) if len(v) < len(f_bar) else f_bar
                f_bar = f_bar.reshape(-1, f_bar.shape[-1])
                K_bar = kernels.matmul(v.reshape(-1, M), f_bar, transpose_a=True)
            else:
                own = np.ascontiguousarray((v if len(v) == 1 else v[functions]).T, like=v)
                K_bar = own[:, 0, :, None] * f_bar[:, 0]  # (M, s, c)
                for p in range(1, v.shape[1]):
                    K_bar += own[:, p, :, None] * f_bar[:, p]
            rows = points_at(X, functions, points)
            rows_bar = self._block_vjp(covariance, K_bar.reshape(M, -1), K, rows)
            if X.ndim == 2:
                X_bar[points] = rows_bar
            else:
                X_bar[functions, points] = rows_bar.reshape(X_bar[functions, points].shape)
        return X_bar


@record
class LayerPaths:
    """Functions of one covariance.

    Parameters
    ----------
    covariance : Covariance
    terms : tuple of KernelTerm
    weights : (S, P, size), optional
        Of the random features.
    mean : Mean, optional
    num_features : int
        As requested; static.
    seeds : int, or a tuple of S int
        Of the features of all functions, or of each; on the host. Static.
    outputs : () or (P,)
        Axes of the outputs. Static.
    """

    covariance: Covariance
    terms: tuple
    weights: Array | None = leaf(default=None)
    mean: Mean | None = None
    num_features: int = static(default=0)
    seeds: int | tuple = static(default=0)
    outputs: tuple = static(default=())

    @property
    def inducing(self):
        """The inducing inputs of the first term, or None."""
        return self.terms[0].inducing if self.terms else None

    @property
    def num_functions(self):
        """S."""
        return max(map(len, self.weight_arrays()))

    def weight_arrays(self):
        """Return the arrays of weights, a list."""
        prior = [] if self.weights is None else [self.weights]
        return prior + [term.weights for term in self.terms]

    def check_points(self, X, name):
        """Raise ``ValueError`` unless points (n, D) fit."""
        if self.terms:
            D = self.terms[0].num_columns(self.covariance)
            check.columns(X, D, name, self.covariance.columns_of)
        else:
            self.covariance.check_dim(X.shape[-1])
        check.codes(self.covariance, X, name)

    def _features(self, X):
        seeds = np.array(self.seeds, np.uint64) if isinstance(self.seeds, tuple) else self.seeds
        return self.covariance.features(self.num_features, seeds, X.shape[-1])

    def forward(self, X):
        covariance, w = self.covariance, self.weights
        if w is None:
            shape = self.num_functions, self.terms[0].weights.shape[1], X.shape[-2]
            values = np.zeros(shape, X.dtype, like=X)
        else:
            values = self._features(X).multiply(X, w)
        blocks = [term.add_to(values, covariance, X) for term in self.terms]
        of_mean = add_mean(values, self.mean, X, self.outputs)

        def back(bar):
            X_bar = np.zeros_like(X) if w is None else self._features(X).multiply_vjp(bar, X, w)
            for term, K in zip(self.terms, blocks, strict=True):
                X_bar += term.vjp(bar, covariance, X, K)
            return plus(of_mean(bar), X_bar)

        return values, back

    def take(self, index):
        """Return the functions of an index of the first axis: a slice, or whole numbers (K,)."""
        S, seeds = self.num_functions, self.seeds
        if isinstance(seeds, tuple):
            seeds = tuple(np.array(seeds, np.uint64)[index].tolist())

        def select(w):
            if w is None or len(w) < S:  # of all functions
                return w
            some = index if isinstance(index, slice) else np.asarray(index, like=w)
            return np.ascontiguousarray(w[some], like=w)

        terms = tuple(replace(term, weights=select(term.weights)) for term in self.terms)
        return replace(self, terms=terms, weights=select(self.weights), seeds=seeds)
