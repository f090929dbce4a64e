"""Messages for parts of a model: of the wrong kind, of the wrong shape, or None."""

import inspect
import re

import numpy as np
import pytest
from support.readme import ROOT
from support.small_models import X, Y, good, relaxed

import fastsvgp as fs

MEANS = [
    (
        fs.means.ConstantMean(np.zeros(1)),
        None,
        r"ConstantMean: `value` has shape \(1,\); these inputs and outputs need \(\)",
    ),
    (
        fs.means.ConstantMean(np.zeros(3)),
        2,
        r"`value` has shape \(3,\); these inputs and outputs need \(\) or \(2,\)",
    ),
    (
        fs.means.LinearMean(np.ones(3)),
        None,
        r"LinearMean: `weights` has shape \(3,\); these inputs and outputs need \(2,\)",
    ),
    (
        fs.means.LinearMean(np.ones((2, 2))),
        None,
        r"`weights` has shape \(2, 2\); these inputs and outputs need \(2,\)",
    ),
    (
        fs.means.LinearMean(np.ones((3, 2))),
        4,
        r"`weights` has shape \(3, 2\); these inputs and outputs need \(2,\) or \(4, 2\)",
    ),
    (
        fs.means.LinearMean(np.ones(2), np.zeros(3)),
        None,
        r"`bias` has shape \(3,\); these inputs and outputs need \(\)",
    ),
]


@pytest.mark.parametrize("mean, P, message", MEANS)
def test_means_of_wrong_shape_are_refused(rng, mean, P, message):
    model, targets = (
        fs.replace(good(rng, P=P), mean=mean),
        (Y if P is None else np.tile(Y[:, None], P)),
    )
    with pytest.raises(ValueError, match=message):
        fs.elbo_and_grad(model, X, targets)
    with pytest.raises(ValueError, match=message):
        fs.predict_f(model, X)
    with pytest.raises(ValueError, match=message):
        fs.collapsed_bound(fs.SGPR(model.covariance, model.inducing, 0.1, mean), X, targets)


def test_parts_in_the_wrong_place(rng):
    m = good(rng)
    for wrong, message in (
        (
            fs.SVGP(m.covariance, m.inducing, m.likelihood, m.posterior),
            r"`posterior` of .*Whitened\(...\), got Gaussian",
        ),
        (
            fs.replace(m, likelihood=None),
            r"`likelihood` of the model must .*Gaussian\(...\), got NoneType",
        ),
        (
            fs.replace(m, covariance=fs.RBF),
            r"`covariance` .* fastsvgp.RBF\(...\), got RBF, a class; call it: fs.RBF\(...\)",
        ),
        (
            fs.replace(m, mean=0.3),
            r"`mean` of the model .* fastsvgp.means.ConstantMean\(...\) or None, got float",
        ),
    ):
        with pytest.raises(TypeError, match=message):
            fs.elbo(wrong, X, Y)
    with pytest.raises(TypeError, match="`covariance` of the model"):
        fs.collapsed_bound(fs.SGPR("rbf", m.inducing, 0.1), X, Y)


@pytest.mark.parametrize("kind, Z, line", [
    (fs.Whitened, "Z", "fs.posteriors.at_prior(fs.Whitened, covariance, Z)"),
    (fs.posteriors.DualSites, "Z",
        "fs.posteriors.at_prior(fs.posteriors.DualSites, covariance, Z)"),
    (fs.posteriors.Orthogonal, "O",
        "fs.posteriors.at_prior(fs.posteriors.Orthogonal, covariance,"
        " fs.posteriors.InducingPair(Z, O))"),
    (fs.posteriors.Relaxed, "Z", "fs.posteriors.Relaxed(...)"),
])  # fmt: skip
def test_a_class_in_the_place_of_a_posterior(rng, kind, Z, line):
    """The remedy in the message works; functions that take no data give it too."""
    m = good(rng)
    covariance, Z = (
        m.covariance,
        (m.inducing if Z == "Z" else fs.posteriors.InducingPair(m.inducing, m.inducing + 0.1)),
    )
    wrong = fs.SVGP(covariance, Z, kind, fs.Gaussian())
    for call in (
        fs.elbo,
        fs.elbo_and_grad,
        fs.fit,
        lambda m, *_: fs.predict_y(m, X),
        lambda m, *_: fs.ravel(m),
    ):
        with pytest.raises(TypeError, match=re.escape(line)):
            call(wrong, X, Y)
    if "at_prior" in line:
        names = {"fs": fs, "covariance": covariance, "Z": m.inducing, "O": m.inducing + 0.1}
        assert np.isfinite(fs.elbo(fs.replace(wrong, posterior=eval(line, names)), X, Y))


def test_a_class_in_the_place_of_a_posterior_of_classes(rng):
    m = good(rng)
    wrong = fs.SVGP(m.covariance, m.inducing, fs.Whitened, fs.Softmax(num_classes=4))
    with pytest.raises(
        TypeError, match=r"fs.posteriors.at_prior\(fs.Whitened, covariance, Z, outputs=4\)"
    ):
        fs.elbo(wrong, X, np.zeros(5, int))
    right = fs.replace(
        wrong, posterior=fs.posteriors.at_prior(fs.Whitened, m.covariance, m.inducing, outputs=4)
    )
    assert np.isfinite(fs.elbo(right, X, np.zeros(5, int), rng=0))


def test_a_part_whose_class_is_no_record(rng):
    class Bare(fs.covariances.Covariance):
        pass

    with pytest.raises(
        TypeError,
        match=(
            "`covariance` of the model must be a record .*, got Bare; its class lacks the decorator"
        ),
    ):
        fs.elbo(fs.replace(good(rng), covariance=Bare()), X, Y)
    with pytest.raises(
        TypeError, match=r"`covariance` of the model must be a record .*, got float$"
    ):
        fs.elbo(fs.replace(good(rng), covariance=1.0), X, Y)


@pytest.mark.parametrize(
    "path",
    [
        "covariance.variance",
        "covariance.lengthscales",
        "inducing",
        "posterior.mean",
        "posterior.variance",
        "posterior.inverse_tril",
        "likelihood.variance",
    ],
)
def test_none_in_a_leaf_is_refused_by_its_path(rng, path):
    model = fs.records.replace_at(relaxed(rng), path, None)
    for call in (fs.elbo, fs.elbo_and_grad, fs.bounds.data_term_and_grad):
        with pytest.raises(
            TypeError, match=f"`{path}` is None where a number or an array must be; a gradient"
        ):
            call(model, X, Y)
    for call in (fs.predict_f, fs.predict_y, fs.sample_f):
        with pytest.raises(TypeError, match=f"`{path}` is None"):
            call(model, X)
    with pytest.raises(TypeError, match=f"`{path}` is None"):
        fs.fit(model, X, Y, steps=1)


def test_what_tree_map_leaves_after_a_partial_gradient(rng):
    model = good(rng)
    _, grad = fs.elbo_and_grad(model, X, Y, wrt=("covariance.variance", "posterior.mean"))
    moved = fs.records.tree_map(lambda p, g: p + 0.01 * g, model, grad)
    with pytest.raises(
        TypeError,
        match=r"`likelihood` of the model must.* got NoneType; a"
        r" gradient.*fastsvgp.records.replace_at",
    ):
        fs.elbo(moved, X, Y)
    with pytest.raises(
        TypeError,
        match=r"`covariance.lengthscales` is None.*outside `wrt`.*fastsvgp.records.replace_at",
    ):
        fs.elbo(fs.replace(moved, likelihood=model.likelihood), X, Y)
    _, grad = fs.elbo_and_grad(model, X, Y)
    # of all fields
    assert np.isfinite(fs.elbo(fs.records.tree_map(lambda p, g: p + 1e-3 * g, model, grad), X, Y))
    mended = fs.records.replace_at(
        model, "posterior.mean", moved.posterior.mean
    )  # as the message says
    assert np.isfinite(fs.elbo(mended, X, Y))


def test_none_inside_sums_and_collapsed_models(rng):
    parts = fs.covariances.Sum(
        (fs.RBF(), fs.covariances.Product((fs.Linear(), fs.covariances.Constant(None))))
    )
    with pytest.raises(TypeError, match=r"`covariance.parts.1.parts.1.variance` is None"):
        fs.elbo(fs.replace(good(rng), covariance=parts), X, Y)
    with pytest.raises(TypeError, match="`noise_variance` is None"):
        fs.collapsed_bound(fs.SGPR(fs.RBF(), X, None), X, Y)
    with pytest.raises(TypeError, match="`mean.value` is None"):
        fs.collapsed_bound(fs.SGPR(fs.RBF(), X, 0.1, fs.means.ConstantMean(None)), X, Y)
    with pytest.raises(TypeError, match="`covariance.variance` is None"):
        fs.inducing.greedy_variance(X, 2, fs.RBF(None))


def test_none_where_it_is_the_default_is_no_error(rng):
    model = good(rng)
    assert model.mean is None and np.isfinite(fs.elbo(model, X, Y))
    blocks = model.covariance.blocks(model.inducing, X)
    assert blocks.Kff is None
    assert np.isfinite(
        fs.bounds.elbo_and_grad_from_blocks(blocks, model.posterior, model.likelihood, Y)[0]
    )


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"covariance": fs.covariances.Sum((fs.RBF(), fs.Linear))},
            "`covariance.parts.1` is Linear, a class;",
        ),
        (
            {"covariance": fs.covariances.Sum((fs.RBF(), 3.0))},
            "`covariance.parts.1` must be a record, .* 3.0",
        ),
        (
            {"covariance": fs.covariances.Product((fs.RBF(), None))},
            "`covariance.parts.1` must .* got None",
        ),
        (
            {"likelihood": fs.likelihoods.Switched((fs.likelihoods.Laplace,))},
            "`likelihood.parts.0` is Laplace, a class; ca",
        ),
    ],
)
def test_wrong_parts_are_named(rng, changes, message):
    with pytest.raises(TypeError, match=message):
        fs.elbo(fs.replace(good(rng), **changes), X, Y)


def test_one_covariance_is_no_tuple_of_parts():
    for kind in (fs.covariances.Sum, fs.covariances.Product):
        message = f"{kind.__name__}: `parts` must be a tuple of covariances, got RBF"
        with pytest.raises(TypeError, match=message):
            kind(fs.RBF())


def test_a_method_that_a_class_lacks_is_named_with_the_page_that_explains_it():
    methods = {
        fs.covariances.Covariance: ("covariance", "matrix", "matrix_vjp", "diag", "diag_vjp"),
        fs.likelihoods.OneLatent: ("likelihood", "log_density", "conditional_mean_and_var"),
        fs.likelihoods.TwoLatents: ("likelihood", "log_density", "conditional_mean_and_var"),
        fs.likelihoods.Likelihood: (
            "likelihood",
            "expected",
            "predict_mean_and_var",
            "predict_log_density",
        ),
        fs.posteriors.Posterior: ("posterior", "check_size", "start_from", "draw", "inverse_of"),
        fs.posteriors.Pass: (
            "posterior",
            *"project joint pull kl natural_sums finish natural_step".split(),
        ),
    }
    for base, (page, *names) in methods.items():
        own = type("Own", (base,), {})
        for name in names:
            needed = inspect.signature(getattr(own, name)).parameters.values()
            due = [one for one in needed if one.default is one.empty and one.kind < 2]
            said = rf"^Own has no method `{name}`; docs/{page}\.md says what it returns$"
            with pytest.raises(NotImplementedError, match=said):
                getattr(own(), name)(*[np.zeros(2)] * (len(due) - 1))
            assert name in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
