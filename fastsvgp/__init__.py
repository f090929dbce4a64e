"""Sparse variational Gaussian processes as fast array functions with closed-form gradients.

Models are records of arrays, and functions take them::

    import fastsvgp as fs

    covariance = fs.RBF(variance=1.0, lengthscales=np.ones(X.shape[1]))
    Z = fs.inducing.kmeans(X, 20, rng=0)
    q = fs.posteriors.at_prior(fs.Whitened, covariance, Z)
    model = fs.SVGP(covariance, Z, q, fs.Gaussian(variance=0.1))
    model, info = fs.fit(model, X, y, steps=200, batch_size=100, rng=0)
    mean, var = fs.predict_y(model, X_new)

``elbo_and_grad`` gives the bound and its gradient to an optimiser of your own; ``ravel`` turns a
model into a flat vector for it. ``search`` finds a model without settings; ``fastsvgp.sklearn`` has
it as an estimator. ``save`` and ``load`` keep a model in a file.

With Gaussian noise, ``collapsed=True`` for ``fit``, or an ``SGPR``, finds a better optimum than
Adam in less time; with other noise, ``natural_step_size=0.1`` does.

The names here are those that most programs need. Each module has the others of its kind:
``covariances``, ``likelihoods``, ``means``, ``posteriors``, ``priors``, ``inducing``, ``bounds``,
``optim``, ``layers`` (deep models, several outputs), ``sites`` (dual parameters), ``qsgp`` (basis
functions), ``sensitivity`` (effects of inputs), ``records``, ``errors``, ``recipes``, ``kernels``,
``distributed``, ``testing``, and ``extending`` for parts of your own. Names load with their first
use: importing this package compiles nothing and touches no GPU.
"""

from .public_names import offer_package

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = offer_package()
