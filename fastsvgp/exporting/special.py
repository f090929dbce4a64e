"""Functions that an expression can call and that a language lacks, as expressions themselves.

``erfcx(z)``, z >= 0, is exp(z^2) erfc(z): with t = 3 / (3 + z), erfcx(z) / t is a polynomial in
2 t - 1 to 7e-16, because it is analytic at both ends of 0 <= t <= 1.

``normal_quantile(level)`` is algorithm AS 241 of Wichura (1988).

``tail(d, v, b)`` is U(d) of ``likelihoods.laplace``.
"""

from typing import NamedTuple

from .steps import number


class Special(NamedTuple):
    """``name(arguments)``, with local names for parts of the expression."""

    arguments: tuple
    local: dict
    result: str
    calls: tuple = ()


ERFCX = (  # from 0 on: the Chebyshev series in 2 t - 1 up to the power 22, in powers
    0.3580023023627799, 0.294464817723293, 0.19674278570136933, 0.10348908730032487,
    0.039842587095666314, 0.008942411537958437, -0.00040413887394316183, -0.0010113539579816233,
    -0.00018276991424949872, 9.225899997789508e-05, 3.585392363681283e-05, -1.0131578675156923e-05,
    -5.823857407636006e-06, 1.5801189369395156e-06, 9.225829640201406e-07, -3.2798388174368307e-07,
    -1.3722842699705352e-07, 7.241314802770536e-08, 1.6652640553590825e-08, -1.3174436327282527e-08,
    -1.1893885619092368e-09, 1.3433763579088608e-09, 2.3183140775046786e-12,
)  # fmt: skip
CENTRE = (  # numerator and denominator, by powers of 0.425^2 - q^2
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3),
)  # fmt: skip
MIDDLE = (  # of r - 1.6, r = sqrt(-log(tail))
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip
FAR = (  # of r - 5
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)  # fmt: skip


def _polynomial(coefficients, x):
    *rest, text = map(number, coefficients)
    for one in reversed(rest):
        text = f"({text} * {x} + {one})"
    return text


def _ratio(coefficients, x):
    return " / ".join(_polynomial(one, x) for one in coefficients)


SPECIAL = {
    "normal_cdf": Special(("z",), {}, "0.5 * erfc(-0.7071067811865476 * z)"),
    "normal_quantile": Special(
        ("level",),
        {
            "q": "level - 0.5",
            "x": "0.180625 - q * q",
            "centre": f"q * {_ratio(CENTRE, 'x')}",
            "r": "sqrt(-log(fmin(level, 1.0 - level)))",
            "a": "r - 1.6",
            "b": "r - 5.0",
            "middle": _ratio(MIDDLE, "a"),
            "outer": _ratio(FAR, "b"),
            "beyond": "choose(q < 0.0, -1.0, 1.0) * choose(r > 5.0, outer, middle)",
        },
        "choose(fabs(q) > 0.425, beyond, centre)",
    ),
    "erfcx": Special(
        ("z",),
        {"t": "3.0 / (3.0 + z)", "w": "2.0 * t - 1.0"},
        f"t * {_polynomial(ERFCX, 'w')}",
    ),
    "tail": Special(
        ("d", "v", "b"),
        {"a": "(v / b - d) / sqrt(2.0 * v)"},
        "choose(a > 0.0, exp(-0.5 * d * d / v) * erfcx(fabs(a)), "
        "exp(0.5 * v / (b * b) - d / b) * erfc(a))",
        ("erfcx",),
    ),
}


def called(texts):
    """Return the names of ``SPECIAL`` that expressions call, in the order of their definitions."""
    text = " ".join(texts)
    found = {name for name in SPECIAL if f"{name}(" in text}
    for name in tuple(found):
        found.update(SPECIAL[name].calls)
    return [name for name in SPECIAL if name in found]
