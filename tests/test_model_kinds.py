"""Messages for public functions and options that a kind of model does not offer."""

import numpy as np
import pytest
from support.public import BY_NAME
from support.small_models import X, Y, good

import fastsvgp as fs

# kinds that offer the functions of an SVGP, as far as they are already imported
KINDS = (
    "(DeepGP(,| or) )?(MultiGP(,| or) )?(QSGP, )?SVGP((,| or) VIF)?"
    "((,| or) bounds.BasisSVGP)?((,| or) bounds.Mixture)?"
    "(, sites.SiteSVGP or sites.VGP)?"
)
COLLAPSED = "SGPR((,| or) bounds.BasisGP)?((,| or) bounds.GPLVM)?( or bounds.OrthogonalSGPR)?"


def test_wrong_model_and_wrong_names(rng):
    with pytest.raises(TypeError, match=f"`model` must be a fastsvgp.{KINDS}, got dict"):
        fs.elbo({}, X, Y)
    with pytest.raises(
        ValueError, match="`wrt` names 'lengthscale', which is not a field.*covariance.lengthscales"
    ):
        fs.elbo_and_grad(good(rng), X, Y, wrt=("lengthscale",))
    for wrong in (3, ("inducing", 3)):
        with pytest.raises(
            TypeError, match="`wrt` must hold names of fields, such as 'covariance'"
        ):
            fs.elbo_and_grad(good(rng), X, Y, wrt=wrong)
    with pytest.raises(ValueError, match="`step_size` must be positive, got 0"):
        fs.natural_step(good(rng), X, Y, step_size=0.0)
    with pytest.raises(AttributeError, match="no attribute 'SVPG'"):
        fs.SVPG  # noqa: B018


def test_what_comes_near_an_svgp_names_what_to_call_instead(rng):
    sgpr = fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:3], noise_variance=0.1)
    orthogonal = fs.bounds.OrthogonalSGPR(
        fs.RBF(1.0, np.ones(2)), fs.posteriors.InducingPair(X[:2], X[2:3]), noise_variance=0.1
    )
    both = (
        r": predict with info.svgp of model, info = fs.fit\(...\), or fs.optimal_svgp\(model, X,"
        r" Y\); .* fs.collapsed_bound$"
    )
    for model in (sgpr, orthogonal):
        for call in (
            lambda m: fs.elbo(m, X, Y),
            lambda m: fs.elbo_and_grad(m, X, Y),
            lambda m: fs.predict_f(m, X),
            lambda m: fs.predict_y(m, X),
            lambda m: fs.predict_log_density(m, X, Y),
            lambda m: fs.predict_quantiles(m, X, 0.5),
            lambda m: fs.predict_cdf(m, X, Y),
            lambda m: fs.sample_f(m, X),
            lambda m: fs.bounds.predict_f_and_vjp(m, X),
        ):
            with pytest.raises(TypeError, match=f"got {type(model).__name__}{both}"):
                call(model)
    trained = fs.fit(good(rng), X, Y, steps=1)
    with pytest.raises(
        TypeError,
        match=r"got tuple: fit returns a model and .* model, info = fastsvgp.fit\(\.\.\.\)",
    ):
        fs.predict_f(trained, X)
    assert fs.predict_f(trained[0], X)[0].shape == (5,)
    with pytest.raises(TypeError, match="got tuple$"):
        fs.predict_f((1, 2), X)
    with pytest.raises(TypeError, match="got TrainingState: give its .model"):
        fs.predict_f(fs.optim.TrainingState(model=good(rng)), X)


SVGP_ONLY = {  # name: arguments beside the model
    "elbo": (X, Y),
    "elbo_and_grad": (X, Y),
    "data_term_and_grad": (X, Y),
    "lsvgp_direction": (X, Y),
    "kl_term_and_grad": (),
    "natural_step": (X, Y),
    "update_inverse_factor": (),
    "predict_f": (X,),
    "predict_y": (X,),
    "predict_log_density": (X, Y),
    "predict_cdf": (X, Y),
    "predict_quantiles": (X, 0.5),
    "sample_f": (X,),
}
SGPR_ONLY = {"collapsed_bound": (X, Y), "collapsed_bound_and_grad": (X, Y), "optimal_svgp": (X, Y)}


@pytest.mark.parametrize("name", SVGP_ONLY)
def test_what_an_sgpr_does_not_offer(name):
    sgpr = fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:3], noise_variance=0.1)
    message = rf"{name}: `model` must be a fastsvgp.{KINDS}, got SGPR: predict with info.svgp of "
    with pytest.raises(TypeError, match=message):
        BY_NAME[name](sgpr, *SVGP_ONLY[name])


@pytest.mark.parametrize("name", SGPR_ONLY)
def test_what_an_svgp_does_not_offer(rng, name):
    message = (
        f"{name}: `sgpr` must be a fastsvgp.{COLLAPSED}, got SVGP, which"
        " offers elbo, natural_step, (em, )?fit, predict_f, predict_y, sample_f, [0-9]+ more$"
    )
    with pytest.raises(TypeError, match=message):
        BY_NAME[name](good(rng), *SGPR_ONLY[name])


@pytest.mark.parametrize("name", SVGP_ONLY | SGPR_ONLY)
def test_what_is_no_model_at_all(rng, name):
    """An object with the fields of a model is refused too."""
    m = good(rng)

    class Parts:
        covariance, inducing, posterior, likelihood, mean = (
            m.covariance,
            m.inducing,
            m.posterior,
            m.likelihood,
            None,
        )

    for wrong, kind in (
        (Parts(), "Parts"),
        (m.posterior, "Whitened"),
        (None, "NoneType"),
        (fs.SVGP, "type"),
    ):
        kinds = f"({KINDS}|{COLLAPSED})"
        message = rf"{name}: `(model|sgpr)` must be a fastsvgp.{kinds}, got {kind}$"
        with pytest.raises(TypeError, match=message):
            BY_NAME[name](wrong, *(SVGP_ONLY | SGPR_ONLY)[name])


def test_a_kind_of_model_says_what_it_offers_and_takes(rng, monkeypatch):
    monkeypatch.setattr(
        fs.extending.models,
        "_IMPLEMENTATIONS",
        {kind: dict(offers) for kind, offers in fs.extending.models._IMPLEMENTATIONS.items()},
    )
    monkeypatch.setattr(fs.extending.models, "_ADVICE", dict(fs.extending.models._ADVICE))

    class Kind:
        pass

    class Finer(Kind):
        pass

    fs.extending.models.register(Kind, elbo=lambda model, X, Y, *, jitter=None: jitter)
    fs.extending.models.register(Kind, kl_term_and_grad=lambda model: "no options")
    fs.extending.models.register(Finer, predict_f=lambda model, Xs, **options: options)
    assert fs.elbo(Kind(), X, Y, jitter=0.1) == fs.elbo(model=Kind(), X=X, Y=Y, jitter=0.1) == 0.1
    assert fs.elbo(Kind(), X, Y) is None
    assert fs.predict_f(Finer(), X, chunk_size=3) == {"chunk_size": 3}
    with pytest.raises(
        TypeError,
        match=f"elbo: `model` must be a fastsvgp.{KINDS}, got Finer, which offers predict_f",
    ):
        fs.elbo(Finer(), X, Y)  # a derived class is a kind of its own
    with pytest.raises(
        TypeError, match="register: 'elboo' is not a public function.*elbo_and_grad"
    ):
        fs.extending.models.register(Kind, elboo=fs.elbo)
    with pytest.raises(TypeError, match="register: `kind` must be the class of a model, got"):
        fs.extending.models.register(Kind(), elbo=fs.elbo)
    with pytest.raises(
        TypeError, match="elbo has no option `num_data` for Kind; it takes `jitter`"
    ):
        fs.elbo(Kind(), X, Y, num_data=9)
    with pytest.raises(
        TypeError, match="kl_term_and_grad has no option `wrt` for Kind; it takes no options"
    ):
        fs.bounds.kl_term_and_grad(Kind(), wrt=("inducing",))
    with pytest.raises(
        TypeError,
        match="predict_f: `model` must be .*got Kind, which offers elbo, kl_term_and_grad",
    ):
        fs.predict_f(Kind(), X)
    fs.extending.models.register(Kind, instead="ask its maker")
    with pytest.raises(
        TypeError,
        match=f"predict_y: `model` must be a fastsvgp.{KINDS}, got Kind: ask its maker",
    ):
        fs.predict_y(Kind(), X)


def test_unknown_options_are_refused(rng):
    m = good(rng)
    blocks = m.covariance.blocks(m.inducing, X)
    for name, arguments in (
        ("elbo", (m, X, Y)),
        ("elbo_and_grad", (m, X, Y)),
        ("data_term_and_grad", (m, X, Y)),
        ("kl_term_and_grad", (m,)),
        ("elbo_and_grad_from_blocks", (blocks, m.posterior, m.likelihood, Y)),
    ):
        call = BY_NAME[name]
        for unknown in ("direction", "argument", "name"):
            for value in (3, None):
                with pytest.raises(
                    TypeError,
                    match=f"{name} has no option `{unknown}`.* it takes .*`jitter`,.*`probes`",
                ):
                    call(*arguments, **{unknown: value})
        with pytest.raises(
            TypeError,
            match=(
                "`probes` is no random quantity of a Whitened posterior, which has none: leave it"
            ),
        ):
            call(*arguments, probes=3)
        call(*arguments, probes=None)  # the default
    for unknown in ("plan", "checked", "about"):  # arguments of inner functions that fit calls
        with pytest.raises(
            TypeError,
            match=f"fit has no option `{unknown}` for SVGP; it takes `batch_size`, .*`steps`",
        ):
            fs.fit(m, X, Y, steps=1, **{unknown: 10})
