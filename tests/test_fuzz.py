"""Fuzzing of public functions: odd arguments give a result or an error naming the argument.

``FASTSVGP_TEST_SEED`` determines the calls. A call can raise errors of type, value or memory. Any
other error (AttributeError, OverflowError, RecursionError...) is a bug, and so is a message that
does not say what to change.
"""

import warnings

import numpy as np
import pytest
from support.numerics import generator

import fastsvgp as fs
from fastsvgp.records import is_record

CALLS = 100  # of each function
N, M, D = 9, 4, 2


def enough(*_):
    """Stop a training after its first step."""
    return True


def cases():
    """Return {name: (function, good arguments)}; fields go by the argument that holds them."""
    rng = np.random.default_rng(0)
    X, Y, Z = rng.standard_normal((N, D)), rng.standard_normal(N), rng.standard_normal((M, D))
    q = fs.Whitened(np.zeros(M), np.eye(M))
    model = fs.SVGP(fs.RBF(1.0, np.ones(D)), Z, q, fs.Gaussian(0.1))
    relaxed = fs.replace(model, posterior=fs.posteriors.Relaxed(np.zeros(M), np.ones(M), np.eye(M)))
    sgpr = fs.SGPR(model.covariance, Z, 0.1)
    steep = {path: fs.priors.LogNormal(np.log(t), 0.01) for path, t in
             (("covariance.variance", 1.0), ("covariance.lengthscales", 1.0),
              ("noise_variance", 0.1))}  # fmt: skip
    blocks = model.covariance.blocks(Z, X)
    pair = fs.posteriors.InducingPair(Z, rng.standard_normal((3, D)))
    two = fs.replace(
        model,
        inducing=pair,
        posterior=fs.posteriors.Orthogonal(np.zeros(M), np.eye(M), np.zeros(3), np.eye(3)),
    )
    wide = fs.replace(
        two, posterior=fs.posteriors.DecoupledWeights(np.zeros(M), np.eye(M), np.ones(3))
    )
    hidden = fs.layers.Layer(
        model.covariance,
        Z,
        fs.posteriors.LikelihoodForm(np.zeros((D, M)), np.ones(M)),
        fs.means.IdentityMean(),
    )
    deep = fs.DeepGP((hidden, fs.layers.Layer(model.covariance, Z, q)), model.likelihood)
    draws = (rng.standard_normal((2, N, D)),)
    sites = fs.sites.SiteSVGP(
        model.covariance, Z, fs.sites.Sites(np.ones(N), np.ones(N)), model.likelihood
    )
    full = fs.sites.VGP(model.covariance, sites.sites, model.likelihood)
    orthogonal = fs.bounds.OrthogonalSGPR(model.covariance, pair, 0.1, np.zeros(3), np.eye(3))
    convolutional = fs.covariances.Convolutional(
        model.covariance, 0.5, fs.Linear(), image_shape=(3, 2), patch_shape=(1, 2)
    )
    images, of_images = (
        rng.standard_normal((N, 6)),
        fs.replace(model, covariance=convolutional, inducing=np.hstack([Z, Z])),
    )
    chevron = fs.qsgp.ChevronWeights(np.zeros(M), np.eye(M, 1), np.ones(M - 1))
    weights = fs.QSGP(
        fs.qsgp.RelevanceBasis(model.covariance, Z, np.ones(M)), chevron, model.likelihood
    )
    features = fs.replace(
        weights, basis=fs.qsgp.RandomFourier(model.covariance, num_features=M, seed=1)
    )
    sample = fs.qsgp.BasisSample(np.arange(2), np.arange(2), weight_i=1.5)
    own = fs.replace(weights, basis=fs.qsgp.InducingBasis(model.covariance, Z))
    kriged, paired = (
        fs.qsgp.kriging_control_variate(features, X),
        fs.qsgp.paired_control_variate(weights, X, "running"),
    )
    chevron_change = fs.qsgp.ChevronWeights(
        fs.qsgp.SparseRows(np.arange(2), np.ones(2)), None, None
    )
    shared = dict(model=model, X=X, Y=Y, jitter=1e-6, rng=0)
    bound = dict(shared, num_data=20.0)
    sums = dict(bound, model=relaxed, probes=2)
    A, L = np.eye(M) + 0.1, np.eye(M)
    on_patches = fs.layers.ConvolutionalLayer(
        fs.RBF(1.0, np.ones(4)), rng.standard_normal((M, 4)),
        fs.Whitened(np.zeros((2, M)), np.stack([np.eye(M)] * 2)),
        image_shape=(3, 3), patch_shape=(2, 2),
    )  # fmt: skip
    maps = fs.DeepGP(
        (on_patches, fs.layers.Layer(model.covariance, rng.standard_normal((M, 8)), q)),
        model.likelihood,
    )
    maps = fs.records.replace_at(maps, "layers.1.covariance.lengthscales", 1.0)
    several = fs.MultiGP(
        (fs.layers.Layer(model.covariance, Z, q), fs.layers.Layer(model.covariance, None, q)),
            model.likelihood,
        rng.standard_normal((2, 2)), fs.means.ConstantMean(np.zeros(2)), Z + 1,
    )  # fmt: skip
    noisy = fs.replace(
        several,
        likelihood=fs.likelihoods.HeteroskedasticGaussian(),
        mixing=(np.ones((1, 1)), np.ones((1, 1))),
    )
    side = fs.layers.ParallelLayers(several.latents, several.mixing, several.mean, several.inducing)
    beside = fs.DeepGP((side, deep.layers[1]), model.likelihood)
    pairs = dict(bound, model=several, Y=np.stack([Y, -Y], axis=1))
    drawing = dict(num_paths=9, num_features=8, frequencies="shared", rng=0, jitter=None)
    paths = fs.sample_paths(model, 3, num_features=8, rng=0)
    values, vjp = paths.and_vjp(X)
    return {
        "sample_paths": (fs.sample_paths, dict(drawing, model=model)),
        "sample_paths of layers": (fs.sample_paths, dict(drawing, model=beside)),
        "sample_paths of sites": (fs.sample_paths, dict(drawing, model=full, site_inputs=X)),
        "sample_paths of weights": (fs.sample_paths, dict(model=features, num_paths=9, rng=0)),
        "values of paths": (paths, dict(X=X)),
        "gradients of paths": (paths.and_grad, dict(X=np.stack([X] * 3))),
        "pullback of paths": (vjp, dict(values_bar=values)),
        "elbo_and_grad of several functions": (fs.elbo_and_grad,
                                               dict(pairs, wrt=("latents.0",), inputs=True)),
        "elbo of mean and noise": (fs.elbo, dict(bound, model=noisy, weights=np.ones(N))),
        "natural_step of several functions": (fs.natural_step,
                                              dict(pairs, step_size=0.3, monotone=True)),
        "natural_steps of several functions": (
            fs.sites.natural_steps, dict(pairs, rows=None, steps=2, step_size=0.3, monotone=False,
                                   tolerance=0.1),
        ),
        "natural_step_and_grad of several functions": (
            fs.optim.natural_step_and_grad, dict(pairs, step_size=0.3, wrt=("mixing",),
                monotone=False),
        ),
        "predict_f of several functions": (
            fs.predict_f, dict(model=several, Xs=X, full_cov=False, full_output_cov=True,
                               jitter=None, chunk_size=3)),
        "sample_f of several functions": (fs.sample_f, dict(model=several, Xs=X, num_samples=2,
                                                            rng=0, jitter=None)),
        "elbo_and_grad of parallel layers": (fs.elbo_and_grad, dict(bound, model=beside)),
        "fit of several functions": (
            fs.fit, dict(model=several, X=X, Y=pairs["Y"], steps=1, natural_step_size=0.1, rng=0,
                         fixed=("mixing",), optimiser=fs.adam(), callback=enough, weights=None)),
        "em of several functions": (
            fs.em, dict(model=several, X=X, Y=pairs["Y"], rounds=1, e_limit=1, m_iterations=1)),
        "multi_gp": (
            fs.layers.multi_gp, dict(X=X, Y=pairs["Y"], num_latents=2, M=M,
                likelihood=model.likelihood,
                              covariance=fs.RBF, posterior=fs.Whitened, weights=None, rng=0)),
        "elbo": (fs.elbo, sums),
        "elbo_and_grad": (fs.elbo_and_grad, dict(sums, wrt=("covariance",), inputs=True)),
        "data_term_and_grad": (fs.bounds.data_term_and_grad, dict(sums, wrt="inducing",
            inputs=False)),
        "lsvgp_direction": (fs.bounds.lsvgp_direction,
                                 dict(bound, model=relaxed, wrt="posterior")),
        "kl_term_and_grad": (fs.bounds.kl_term_and_grad,
                             dict(model=relaxed, jitter=1e-6, wrt=None, probes=2, rng=0)),
        "elbo_and_grad_from_blocks": (
            fs.bounds.elbo_and_grad_from_blocks,
            dict(blocks=blocks, posterior=q, likelihood=model.likelihood, Y=Y, num_data=None,
                 jitter=None, rng=None),
        ),
        "predict_from_blocks": (fs.bounds.predict_from_blocks,
                                dict(blocks=blocks, posterior=q, full_cov=False, jitter=None)),
        "natural_step": (fs.natural_step, dict(bound, step_size=0.3)),
        "natural_update": (fs.optim.natural_update, dict(posterior=q, posterior_bar=q,
            step_size=0.3)),
        "elbo_and_grad of layers": (fs.elbo_and_grad,
                                    dict(bound, model=deep, wrt=("layers.1.covariance",),
                                         num_samples=2)),
        "elbo of layers at draws": (fs.elbo,
                                    dict(model=deep, X=X, Y=Y, draws=draws, num_data=20.0)),
        "natural_step of layers": (fs.natural_step,
                                   dict(bound, model=deep, step_size=0.3, monotone=False)),
        "predict_log_density of layers": (
            fs.predict_log_density, dict(model=deep, Xs=X, Ys=Y, num_samples=4, rng=0,
                                         chunk_size=3),
        ),
        "sample_f of layers": (fs.sample_f,
                               dict(model=deep, Xs=X, num_samples=2, rng=0, jitter=1e-6)),
        "deep_gp": (
            fs.layers.deep_gp,
            dict(X=X, likelihood=model.likelihood, num_layers=2, M=M, width=1, covariance=fs.RBF,
                 posterior=fs.Whitened, rng=0),
        ),
        "pca_mean": (fs.inducing.pca_mean, dict(X=X, P=1, rng=0, subset=9)),
        "natural_step_and_grad": (fs.optim.natural_step_and_grad,
                                  dict(bound, step_size=0.3, wrt="inducing", monotone=True)),
        "collapsed_bound": (fs.collapsed_bound, dict(sgpr=sgpr, X=X, Y=Y, jitter=1e-6)),
        "collapsed_bound_and_grad": (fs.collapsed_bound_and_grad,
                                     dict(sgpr=sgpr, X=X, Y=Y, jitter=1e-6, wrt=None)),
        "optimal_svgp": (fs.optimal_svgp, dict(sgpr=sgpr, X=X, Y=Y, jitter=1e-6)),
        "predict_f": (fs.predict_f, dict(model=model, Xs=X, full_cov=False, jitter=None,
                                         chunk_size=3)),
        "predict_f_and_vjp": (fs.bounds.predict_f_and_vjp, dict(model=model, Xs=X, jitter=None)),
        "predict_y": (fs.predict_y, dict(model=model, Xs=X, jitter=None, chunk_size=3)),
        "predict_log_density": (fs.predict_log_density,
                                dict(model=model, Xs=X, Ys=Y, jitter=None, chunk_size=3)),
        "sample_f": (fs.sample_f, dict(model=model, Xs=X, num_samples=2, rng=0, jitter=None)),
        "ravel": (fs.ravel, dict(model=model, unconstrained=True, fixed=("inducing",),
                                 transform="log")),
        "elbo_and_grad of images": (fs.elbo_and_grad,
                                    dict(bound, model=of_images, X=images, inputs=True)),
        "extract_patches": (fs.covariances.extract_patches,
                            dict(X=images, image_shape=(3, 2, 1), patch_shape=(2, 2), stride=1)),
        "patches": (fs.inducing.patches,
                           dict(X=images, M=M, covariance=of_images.covariance, rng=0)),
        "kmeans": (fs.inducing.kmeans, dict(X=X, M=M, rng=0, iterations=2, subset=9)),
        "greedy_variance": (
            fs.inducing.greedy_variance,
            dict(X=X, M=M, covariance=model.covariance, rng=0, subset=9),
        ),
        "elbo_and_grad of two sets": (fs.elbo_and_grad,
                                      dict(bound, model=two, wrt=("inducing.O",))),
        "elbo_and_grad of weights": (fs.elbo_and_grad, dict(bound, model=wide, sampled=2)),
        "collapsed_bound_and_grad of two sets": (
            fs.collapsed_bound_and_grad, dict(sgpr=orthogonal, X=X, Y=Y, jitter=1e-6)),
        "log_prior_and_grad": (fs.priors.log_prior_and_grad,
                               dict(model=sgpr, priors={"covariance": fs.priors.Gamma(2.0, 3.0)})),
        "laplace": (fs.laplace, dict(model=sgpr, X=X, Y=Y, priors=steep, draws=2, rng=0,
                                     fixed=())),
        "tighter_bound_and_grad": (fs.bounds.tighter_bound_and_grad,
                                   dict(sgpr=sgpr, X=X, Y=Y, jitter=1e-6, max_rows=10, wrt=None)),
        "certificate": (fs.certificate, dict(model=sgpr, X=X, Y=Y, jitter=1e-6, within=0.1)),
        "convert": (fs.posteriors.convert, dict(model=model,
            kind=fs.posteriors.AbsorbedDualSites, jitter=None)),
        "em": (
            fs.em,
            dict(shared, rounds=1, e_limit=1, m_iterations=1, e_tolerance=0.1, step_size=0.5,
                 optimiser=None, fixed=(),
                 tolerance=0.1, callback=None),
        ),
        "natural_steps": (
            fs.sites.natural_steps,
            dict(bound, rows=None, steps=2, step_size=0.3, monotone=True, tolerance=0.1),
        ),
        "bound_and_grad of sites": (
            fs.sites.bound_and_grad, dict(shared, model=sites, wrt=("sites",)),
        ),
        "bound_and_grad of all data": (fs.sites.bound_and_grad,
                                            dict(shared, model=full, wrt=("covariance",))),
        "bound_terms": (fs.sites.bound_terms, dict(shared, model=sites)),
        "bound_terms of all data": (fs.sites.bound_terms, dict(shared, model=full)),
        "natural_steps of all data": (
            fs.sites.natural_steps, dict(shared, model=full, rows=None, steps=2, step_size=0.3,
                                   monotone=True, tolerance=0.1),
        ),
        "tied of all data": (fs.sites.tie_sites, dict(model=full, X=X, to=fs.Whitened,
            jitter=None)),
        "tied": (fs.sites.tie_sites, dict(model=sites, X=X, to=fs.Marginal, jitter=None)),
        "natural_step of sites": (fs.natural_step,
                                  dict(shared, model=sites, rows=[1, 3], step_size=0.5,
                                       monotone=False)),
        "dual_parameters": (fs.sites.dual_parameters, dict(shared)),
        "leave_one_out": (fs.sites.leave_one_out,
                          dict(shared, model=fs.natural_step(model, X, Y, step_size=1.0)[0])),
        "elbo_and_grad of sites": (
            fs.elbo_and_grad, dict(bound,
                model=fs.replace(model, posterior=fs.posteriors.AbsorbedDualSites(np.ones(M),
                    np.eye(M)))),
        ),
        "joint_posterior": (fs.posteriors.joint_posterior, dict(model=two, jitter=None)),
        "at_prior": (
            fs.posteriors.at_prior, dict(kind=fs.posteriors.Orthogonal,
                covariance=model.covariance, inducing=pair,
                              outputs=None, jitter=None),
        ),
        "bound": (fs.qsgp.bound,
                         dict(model=features, X=X, Y=Y, num_data=20.0, jitter=1e-6)),
        "bound_and_grad": (fs.qsgp.bound_and_grad,
                                  dict(model=weights, X=X, Y=Y, num_data=20.0, wrt=("posterior",))),
        "sampled_bound_and_grad": (
            fs.qsgp.sampled_bound_and_grad, dict(model=weights, X=X, Y=Y, sample=sample,
                num_data=20.0,
                                            wrt=("basis",), tangent=None),
        ),
        "sampled_bound_and_grad of the paper": (
            fs.qsgp.sampled_bound_and_grad,
            dict(model=features, X=X, Y=Y,
                 sample=fs.qsgp.BasisSample(np.arange(2), np.arange(2), np.arange(3)),
                 wrt=("posterior",)),
        ),
        "sampled_bound_and_grad_from_features": (
            fs.qsgp.sampled_bound_and_grad_from_features,
            dict(Phi_i=X, Phi_j=X, posterior=chevron, likelihood=model.likelihood, Y=Y,
                 sample=sample, precision=np.ones(M),
                 num_data=20.0, tangent=None),
        ),
        "sampled_bound_and_grad with a control": (
            fs.qsgp.sampled_bound_and_grad, dict(model=weights, X=X, Y=Y, sample=sample,
                wrt="posterior",
                                            control=paired),
        ),
        "sampled_bound_and_grad, kriged": (
            fs.qsgp.sampled_bound_and_grad, dict(model=features, X=X, Y=Y, sample=sample,
                                            control=kriged),
        ),
        "kriging_control_variate": (fs.qsgp.kriging_control_variate, dict(model=features,
            points=X, jitter=None)),
        "paired_control_variate": (fs.qsgp.paired_control_variate,
                           dict(model=features, points=X, coefficient=0.5, targets=Y, jitter=None)),
        "update_control_variate": (fs.qsgp.update_control_variate,
                            dict(model=features, control=kriged, change=chevron_change)),
        "draw_basis_sample": (
            fs.qsgp.draw_basis_sample, dict(basis=weights.basis, size=2, rng=0, scheme="without",
                                       pair=True, columns=3),
        ),
        "draw_basis_sample of a step": (
            fs.qsgp.draw_basis_sample, dict(basis=features.basis, size=2, rng=(0, 5),
                                       scheme="stratified", pair=True, columns=3),
        ),
        "optimal_weights": (
            fs.qsgp.optimal_weights, dict(model=features, X=X, Y=Y, iterations=2, tolerance=0.1,
                                     jitter=None, callback=enough),
        ),
        "optimal_diagonal": (fs.qsgp.optimal_diagonal,
                             dict(model=weights, X=X, num_data=20.0, jitter=None)),
        "optimal_precision": (fs.qsgp.optimal_precision, dict(model=weights)),
        "relevance_vectors": (fs.qsgp.relevance_vectors, dict(model=weights, threshold=10.0)),
        "prune": (fs.qsgp.prune, dict(model=weights, keep=np.arange(1, 3))),
        "predict_f of weights": (fs.predict_f,
                                 dict(model=weights, Xs=X, full_cov=True, chunk_size=3)),
        "predict_y of weights": (fs.predict_y,
                                 dict(model=features, Xs=X, median=True, chunk_size=3)),
        "predict_y of more weights": (fs.predict_y,
                                      dict(model=own, Xs=X, median=False, augmented=X,
                                           chunk_size=3)),
        "sample_f of weights": (fs.sample_f, dict(model=features, Xs=X, num_samples=2, rng=0)),
        "median_lengthscales": (fs.inducing.median_lengthscales, dict(X=X, rng=0, ard=True,
            subset=9)),
        "inverse_factor": (fs.optim.inverse_factor,
                           dict(A=A, L=L, step_size=None, tolerance=None, max_steps=5, gap=None)),
        "newton_schulz_step": (fs.optim.newton_schulz_step, dict(A=A, L=L, step_size=0.5)),
        "update_inverse_factor": (fs.optim.update_inverse_factor, dict(model=relaxed, jitter=None)),
        "by_field": (fs.optim.by_field, dict(rest=fs.adam(), fields={"inducing": fs.sgd(0.1)},
                                       after={"inducing": 2})),
        "adam": (
            fs.adam,
            dict(step_size=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8, step_sizes={"inducing": 0.1},
                 fixed=(), transform="log"),
        ),
        "adagrad": (fs.optim.adagrad, dict(step_size=0.1, epsilon=1e-8, fixed="inducing")),
        "sgd": (fs.sgd, dict(step_size=0.1, momentum=0.5, step_sizes=None, fixed="inducing",
                             transform="softplus")),
        "replace_at": (fs.records.replace_at, dict(tree=model, path="covariance.variance",
            value=2.0)),
        "elbo_and_grad of feature maps": (
            fs.elbo_and_grad, dict(model=maps, X=rng.standard_normal((N, 9)), Y=Y, jitter=1e-6,
                                   rng=0),
        ),
        "to_host": (fs.to_host, dict(tree=model)),
        "set_num_threads": (fs.set_num_threads, dict(count=None)),
        "inverse_updates": (fs.optim.inverse_updates,
                            dict(step_size=None, tolerance=1e-3, max_steps=3, direction="exact")),
        "fit": (
            fs.fit,
            dict(shared, steps=1, batch_size=5, natural_step_size=0.1, optimiser=fs.adam(),
                 fixed=(), tolerance=0.1,
                 smoothing=0.9, checkpoint=None, probes=None, callback=enough, validate=None,
                 patience=None),
        ),
    }  # fmt: skip


def odd(rng, good):
    """Return an odd value, which can be valid."""
    array = np.asarray(good, float) if isinstance(good, np.ndarray) else np.ones((3, 2))
    holed = array.copy()
    holed.flat[0] = rng.choice([np.nan, np.inf, -np.inf])
    pool = [
        None, True, 0, -1, 1.5, -0.0, np.nan, np.inf, -np.inf, 10**5, 2**31, 10**22, 10**400, 1e300,
        1e-320, 1j,
        "3", "covariance", "", b"x", ("inducing", 3), "posterior.nothing", [], (), {}, [1, [2]],
        set(), {"a": 1}, {1: 2},
        {"inducing": 3},
        np.longdouble(1.0), np.float32(0.5), np.array(1.0), np.array("a"), np.datetime64("2020"),
        np.random.default_rng(0),
        object(), len, dict, fs.RBF, lambda *_: 1.0, range(3), iter([1]), slice(2),
        array, array[:0], array[None], array.T, -array, 1e100 * array, holed,
        np.ma.masked_invalid(holed), array.tolist(),
        *(array.astype(kind) for kind in (np.float32, int, complex, object, str, np.longdouble)),
        np.empty((0, 0)), np.zeros((2, 2, 2, 2)), np.zeros((N, 0)),
        fs.RBF(), fs.Gaussian(0.1), fs.means.ZeroMean(), fs.records.Blocks(1, 2, 3),
        fs.records.Blocks(None, np.eye(2), "x"),
        fs.RBF(variance=None), fs.covariances.Sum(()), fs.Whitened("a", None),
    ]  # fmt: skip
    return pool[rng.integers(len(pool))]


def inner(rng, record):
    """Return a model with an odd value in one of its leaves."""
    paths = [path for path, _, _ in fs.records.leaves(record)]
    path = paths[rng.integers(len(paths))]
    return (
        fs.records.replace_at(
            record, path, odd(rng, dict((p, v) for p, _, v in fs.records.leaves(record))[path])
        ),
        path,
    )


def tried(function, arguments, rng):
    """Make one call; return the odd value, the names an error can give it, and the outcome."""
    arguments = dict(arguments)
    key = list(arguments)[rng.integers(len(arguments))]
    names = {key}
    if is_record(arguments[key]) and rng.random() < 0.6:
        arguments[key], path = inner(rng, arguments[key])
        names |= {*path.split("."), *(["inputs"] if path == "inducing" else [])}
    else:
        arguments[key] = odd(rng, arguments[key])
        if key == "tree":
            names.add("path")  # of which another record knows nothing
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            function(**arguments)
        except Exception as error:
            return arguments[key], names, error
        finally:
            fs.set_num_threads(None)
    return arguments[key], names, None


@pytest.mark.parametrize("name", cases())
def test_an_answer_or_an_error_that_names_the_argument(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a checkpoint may be called anything
    rng = generator(*name.encode())
    function, arguments = cases()[name]
    for i in range(CALLS):
        value, names, error = tried(function, arguments, rng)
        if error is not None:
            said = f"call {i}: {names} = {value!r}: {type(error).__name__}: {error}"
            assert isinstance(error, (TypeError, ValueError, MemoryError)), said
            # a function's own errors are left as they are
            own = isinstance(error, (fs.NotPositiveDefinite, MemoryError)) or callable(value)
            assert own or any(name in str(error) for name in names), said
