"""SOLVE-GP's posteriors in models: bounds, natural steps, predictions, files and errors."""

import numpy as np
import pytest
from support import definitions
from support.derivatives import assert_gradient
from support.orthogonal_problems import KINDS, cleaned, each_kind, problem
from support.posterior_problems import JITTER

import fastsvgp as fs
from fastsvgp.posteriors.orthogonal import OrthogonalSets


@pytest.mark.parametrize("P", [None, 2])
@each_kind
def test_one_natural_step_of_size_one_is_the_optimum(rng, kind, P):
    """Under Gaussian noise and all data the gradient vanishes, and a smaller step goes uphill."""
    batch = () if P is None else (P,)
    X, Y = rng.uniform(-2, 2, (40, 2)), rng.standard_normal((40, *batch))
    q, _ = problem(rng, kind, 4, 3, 1, P)
    pair = fs.posteriors.InducingPair(rng.uniform(-2, 2, (4, 2)), rng.uniform(-2, 2, (3, 2)))
    model = fs.SVGP(fs.Matern32(1.1, np.array([0.9, 1.3])), pair, q, fs.Gaussian(0.2))
    stepped, info = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
    assert not info.backed_off
    value, grad = fs.elbo_and_grad(stepped, X, Y, jitter=JITTER)
    for path in q.natural_fields:
        np.testing.assert_allclose(getattr(grad.posterior, path), 0, atol=1e-8, err_msg=path)
    for path in {path for path, _, _ in fs.records.leaves(q)} - set(q.natural_fields):
        np.testing.assert_array_equal(getattr(stepped.posterior, path), getattr(q, path))
    smaller, _ = fs.natural_step(model, X, Y, step_size=0.3, jitter=JITTER)
    assert info.value < fs.elbo(smaller, X, Y, jitter=JITTER) < value


@each_kind
def test_sizes_are_checked(rng, kind):
    q, _ = problem(rng, kind, 4, 3, 1, 2)
    assert q.check_size(4, 3) == (2,)
    of_v = q.fields_of("v")[0]
    for wrong, message in (
        (
            {of_v: np.zeros((2, 4))},
            rf"{of_v} \(2, 4\), but that set has 3 inducing inputs: use \(3,\), or \(P, 3\) with",
        ),
        (
            {of_v: np.zeros(3)},
            rf"{of_v} \(3,\), but that set has 3 .*with P outputs in every field",
        ),
        ({"scale_tril_u": np.zeros((2, 4, 3))}, r"scale_tril_u \(2, 4, 3\), but that set has 4"),
    ):
        wrong = fs.replace(q, **wrong)
        with pytest.raises(ValueError, match=message):
            wrong.check_size(4, 3)
    pair = fs.posteriors.InducingPair(rng.standard_normal((4, 2)), rng.standard_normal((3, 2)))
    model = fs.SVGP(fs.RBF(), pair, q, fs.Gaussian(0.1))
    X, Y = rng.standard_normal((5, 2)), rng.standard_normal((5, 2))
    assert np.isfinite(fs.elbo(model, X, Y))
    with pytest.raises(
        TypeError,
        match=f"`inducing` is an array, one set .*, and a {kind.__name__} posterior takes 2",
    ):
        fs.elbo(fs.replace(model, inducing=pair.Z), X, Y)


def model_of(rng, kind, P=None, likelihood=None, covariance=None):
    """``(model, X, Y)``."""
    q, _ = problem(rng, kind, 5, 3, 1, P)
    q = cleaned(q)
    pair = fs.posteriors.InducingPair(rng.uniform(-2, 2, (5, 2)), rng.uniform(-2, 2, (3, 2)))
    covariance = covariance or fs.Matern32(1.3, np.array([0.8, 1.2]))
    X, Y = rng.uniform(-2, 2, (17, 2)), rng.standard_normal((17,) if P is None else (17, P))
    return (
        fs.SVGP(
            covariance, pair, q, likelihood or fs.StudentT(0.4, df=4.0), fs.means.ConstantMean(0.3)
        ),
        X,
        Y,
    )


@pytest.mark.parametrize("P", [None, 2])
@each_kind
def test_gradients_of_the_whole_model(rng, kind, P):
    model, X, Y = model_of(rng, kind, P)
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, num_data=60, jitter=JITTER, inputs=True)

    def definition(m):
        stack = fs.replace(m, inducing=np.concatenate([m.inducing.Z, m.inducing.O]))
        return definitions.elbo(stack, X, Y, 60 / 17, JITTER)

    np.testing.assert_allclose(value, float(definition(model).real), rtol=1e-10)
    assert_gradient(definition, model, grad, rng)
    fs.testing.assert_gradient(
        lambda X: fs.elbo(model, X, Y, num_data=60, jitter=JITTER), X, X_bar, rng=rng, rtol=1e-9
    )


@pytest.mark.parametrize("P", [None, 3])
@each_kind
def test_the_joint_model_is_the_same(rng, kind, P):
    model, X, Y = model_of(rng, kind, P)
    joint = fs.posteriors.joint_posterior(model, jitter=JITTER)
    assert type(joint.posterior) is (fs.Marginal if kind.unwhitens else fs.Whitened)
    assert fs.elbo(joint, X, Y, jitter=JITTER) == pytest.approx(
        fs.elbo(model, X, Y, jitter=JITTER), rel=1e-10
    )
    for full_cov in (False, True):
        for a, b in zip(
            *(fs.predict_f(m, X, full_cov=full_cov, jitter=JITTER) for m in (joint, model)),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=1e-9)
    _, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    _, same = fs.elbo_and_grad(joint, X, Y, jitter=JITTER)
    if kind is fs.posteriors.WhitenedOrthogonal:
        np.testing.assert_allclose(
            np.vstack([grad.inducing.Z, grad.inducing.O]), same.inducing, rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(
            grad.covariance.lengthscales, same.covariance.lengthscales, rtol=1e-8
        )
    with pytest.raises(
        TypeError,
        match="joint_posterior: a (Whitened|Marginal) posterior has one set of inducing inputs"
        " already",
    ):
        fs.posteriors.joint_posterior(joint)


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize(
    "kind",
    [*KINDS, fs.Whitened, fs.Marginal, fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites],
    ids=lambda kind: kind.__name__,
)
def test_a_start_at_the_prior(rng, kind, outputs):
    model, X, Y = model_of(rng, fs.posteriors.Orthogonal, outputs)
    inducing = model.inducing if issubclass(kind, OrthogonalSets) else model.inducing.Z
    q = fs.posteriors.at_prior(kind, model.covariance, inducing, outputs=outputs, jitter=JITTER)
    assert type(q) is kind
    model = fs.replace(model, inducing=inducing, posterior=q, mean=None)
    kl, grad = fs.bounds.kl_term_and_grad(model, jitter=JITTER)
    assert abs(kl) < 1e-12
    for path, _, bar in fs.records.leaves(grad.posterior):
        np.testing.assert_allclose(bar, 0, atol=1e-10, err_msg=path)
    mean, cov = fs.predict_f(model, X, full_cov=True, jitter=JITTER)
    np.testing.assert_array_equal(mean, 0)
    K = model.covariance.Kff(X)
    # the jitter of Kuu
    np.testing.assert_allclose(cov, K if outputs is None else np.stack([K] * outputs), atol=1e-2)


def test_at_prior_refuses_invalid_arguments(rng):
    model, _, _ = model_of(rng, fs.posteriors.Orthogonal)
    with pytest.raises(
        TypeError,
        match="at_prior: `kind` must be Whitened, .* or DecoupledWeights, got LikelihoodForm",
    ):
        fs.posteriors.at_prior(fs.posteriors.LikelihoodForm, model.covariance, model.inducing)
    with pytest.raises(TypeError, match="at_prior: `kind` must be .*, got Orthogonal"):
        fs.posteriors.at_prior(model.posterior, model.covariance, model.inducing)
    with pytest.raises(
        TypeError,
        match=(
            "`inducing` is a record InducingPair of 2 sets .*, and a Whitened posterior takes one"
        ),
    ):
        fs.posteriors.at_prior(fs.Whitened, model.covariance, model.inducing)
    with pytest.raises(
        TypeError, match="`inducing` is an array, one set .*, and a Orthogonal posterior takes 2"
    ):
        fs.posteriors.at_prior(fs.posteriors.Orthogonal, model.covariance, model.inducing.Z)
    with pytest.raises(ValueError, match="`outputs` must be a whole number of at least 1"):
        fs.posteriors.at_prior(
            fs.posteriors.Orthogonal, model.covariance, model.inducing, outputs=0
        )
    with pytest.raises(TypeError, match="`covariance` of the model must be a record"):
        fs.posteriors.at_prior(fs.posteriors.Orthogonal, fs.RBF, model.inducing)
    twice = fs.posteriors.InducingPair(model.inducing.Z, model.inducing.Z[:2])
    with pytest.raises(fs.NotPositiveDefinite):
        fs.posteriors.at_prior(fs.posteriors.Orthogonal, model.covariance, twice, jitter=0.0)


@each_kind
def test_files_flat_vectors_and_training(rng, tmp_path, kind):
    model, X, Y = model_of(rng, kind, likelihood=fs.Gaussian(0.3))
    fs.save(tmp_path / "m.npz", model)
    again = fs.load(tmp_path / "m.npz")
    assert type(again.inducing) is fs.posteriors.InducingPair and fs.elbo(again, X, Y) == fs.elbo(
        model, X, Y
    )
    _, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    value = lambda moved: fs.elbo(moved, X, Y, jitter=JITTER)  # noqa: E731
    # O can lie near Z, where the bound is strongly curved: small steps
    fs.testing.assert_gradient(value, model, grad, rng=rng, step=5e-5)
    optimiser = fs.adam(0.01, step_sizes={"inducing.O": 1e-3})
    fields = fs.optim.by_field(fs.adam(0.01), {"inducing.O": fs.sgd(1e-5)})
    for settings in ({"optimiser": optimiser}, {"optimiser": fields}, {"natural_step_size": 0.5}):
        trained, info = fs.fit(model, X, Y, steps=30, rng=0, **settings)
        assert info.values[-1] > info.values[0]
        for name in ("Z", "O"):
            assert not np.array_equal(
                getattr(trained.inducing, name), getattr(model.inducing, name)
            )


@each_kind
def test_duplicated_inducing_inputs_are_named(rng, kind):
    model, X, Y = model_of(rng, kind)
    pair = model.inducing
    O = pair.O.copy()  # noqa: E741
    O[2] = pair.Z[4]
    cases = [
        (
            fs.posteriors.InducingPair(pair.Z, O),
            (
                r"^`inducing.O\[2\]` and `inducing.Z\[4\]` are the same inputs: move .* not"
                r" positive def"
            ),
        ),
        (
            fs.posteriors.InducingPair(pair.Z, pair.O[[0, 1, 0]]),
            r"`inducing.O\[2\]` and `inducing.O\[0\]` are the same inputs",
        ),
    ]
    if kind is fs.posteriors.DecoupledWeights:  # factorises Kuu alone
        assert all(
            np.isfinite(fs.elbo(fs.replace(model, inducing=wrong), X, Y, jitter=0.0))
            for wrong, _ in cases
        )
        twice = fs.posteriors.InducingPair(pair.Z[[0, 1, 2, 3, 1]], pair.O)
        cases = [
            (
                twice,
                (
                    r"^`inducing.Z\[4\]` and `inducing.Z\[1\]` are the same inputs: move .* not"
                    r" positive def"
                ),
            )
        ]
    for wrong, message in cases:
        for call in (fs.elbo, fs.elbo_and_grad, fs.natural_step):
            with pytest.raises(fs.NotPositiveDefinite, match=message):
                call(fs.replace(model, inducing=wrong), X, Y, jitter=0.0)
        # with the default jitter it is its definition
        assert np.isfinite(fs.elbo(fs.replace(model, inducing=wrong), X, Y))
    one = fs.replace(
        model,
        inducing=pair.Z[[0, 1, 2, 1]],
        posterior=fs.posteriors.at_prior(fs.Whitened, model.covariance, pair.Z[:4]),
    )
    with pytest.raises(
        fs.NotPositiveDefinite, match=r"`inducing\[3\]` and `inducing\[1\]` are the same inputs"
    ):
        fs.elbo(one, X, Y, jitter=0.0)
    apart = fs.replace(one, inducing=pair.Z[:4], covariance=fs.Linear())  # of rank two
    with pytest.raises(fs.NotPositiveDefinite, match="^the 4 x 4 matrix is not positive definite"):
        fs.elbo(apart, X, Y, jitter=0.0)


@pytest.mark.parametrize("P", [None, 2])
@each_kind
def test_prior_on_v_gives_the_posterior_on_the_first_set(rng, kind, P):
    """``SVGP`` on Z with the same q(u): the bound and all predictions."""
    model, X, Y = model_of(rng, kind, P)
    prior = fs.posteriors.at_prior(kind, model.covariance, model.inducing, outputs=P, jitter=JITTER)
    fields = {"mean_u": model.posterior.mean_u, "scale_tril_u": model.posterior.scale_tril_u}
    model = fs.replace(model, posterior=fs.replace(prior, **fields))
    one = (fs.Marginal if kind.unwhitens else fs.Whitened)(*fields.values())
    on_Z = fs.replace(model, inducing=model.inducing.Z, posterior=one)
    assert fs.elbo(model, X, Y, jitter=JITTER) == pytest.approx(
        fs.elbo(on_Z, X, Y, jitter=JITTER), rel=1e-10
    )
    for full_cov in (False, True):
        for a, b in zip(
            *(fs.predict_f(m, X, full_cov=full_cov, jitter=JITTER) for m in (model, on_Z)),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@each_kind
def test_shards_make_the_whole_and_chunks_the_predictions(rng, kind):
    model, X, Y = model_of(rng, kind, 2)
    value, grad = fs.bounds.data_term_and_grad(model, X, Y, jitter=JITTER)
    shards = [
        fs.bounds.data_term_and_grad(model, X[at], Y[at], jitter=JITTER)
        for at in (slice(0, 6), slice(6, 7), slice(7, 17))
    ]
    assert sum(part for part, _ in shards) == pytest.approx(value, rel=1e-12)
    total = fs.records.tree_map(lambda *bars: sum(bars), *(bars for _, bars in shards))
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(total), fs.records.leaves(grad), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=path)
    for a, b in zip(
        fs.predict_y(model, X, chunk_size=4, jitter=JITTER),
        fs.predict_y(model, X, jitter=JITTER),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
