"""Functions that an expression can call and that C and NumPy lack, as expressions themselves.

``erfcx(z)``, z >= 0, is exp(z^2) erfc(z), and from 8 on its asymptotic series
(1 - s (1 - 3 s (1 - 5 s ...))) / (z sqrt(pi)), s = 1 / (2 z^2), which 15 terms give to 2e-16.

``tail(d, v, b)`` is U(d) of ``likelihoods.laplace``.
"""

from typing import NamedTuple


class Special(NamedTuple):
    """``name(arguments)``, with local names for parts of the expression."""

    arguments: tuple
    local: dict
    result: str
    calls: tuple = ()


def _series():
    text = "1.0"
    for odd in range(29, 0, -2):
        text = f"(1.0 - {odd}.0 * s * {text})"
    return text


SPECIAL = {
    "normal_cdf": Special(("z",), {}, "0.5 * erfc(-0.7071067811865476 * z)"),
    "erfcx": Special(
        ("z",),
        {"near": "fmin(z, 8.0)", "far": "fmax(z, 8.0)", "s": "0.5 / (far * far)"},
        f"choose(z < 8.0, exp(near * near) * erfc(near), 0.5641895835477563 / far * {_series()})",
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
