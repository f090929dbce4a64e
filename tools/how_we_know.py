"""Write the table of docs/how_we_know.md from the tests.

Usage: ``python tools/how_we_know.py``. ``FORMULAS`` names, for each formula, its derivation, its
oracle and the test that compares them. Everything else is read from the sources: that all of them
exist, that the test reaches the oracle by its imports, that the oracle imports nothing of the
package, and the tolerances in the body of the test or of the helpers that it calls.
"""

import ast
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how_we_know.md"
TESTS = ROOT / "tests"
BEGIN, END = "<!-- begin: written by tools/how_we_know.py -->\n", "<!-- end -->\n"
WORDS = {"rtol", "atol", "slack"}
DEPTH = 3  # calls from a test to the comparison

# formula | page of docs/theory | module of fastsvgp with the derivation | oracle | test
FORMULAS = """
stationary covariances, forward | svgp | kernels/cpu/pairwise/direct.py | covariances | kernels/test_pairwise.py::test_matrix_is_as_accurate_as_the_plain_definition
stationary covariances, reverse | index | kernels/cpu/pairwise/direct.py | covariances | kernels/test_pairwise.py::test_reverse_rule
every covariance, value | index | covariances/base.py | covariances | covariances/test_covariances.py::test_matrix_and_diag
every covariance, gradients | index | covariances/base.py | covariances | covariances/test_covariances.py::test_blocks_reversed
weighted sums of points | index | covariances/weighted.py | weighted | covariances/test_weighted.py::test_blocks
patches | layers | covariances/base.py | patches | covariances/test_convolutional.py::test_each_block_reversed
q(f), its covariance and KL, every posterior | svgp | posteriors/whitening/base.py | gp | posteriors/test_posteriors.py::test_marginals_joint_and_kl_by_definition
reverse rule of every posterior | svgp | posteriors/whitening/base.py | gp | posteriors/test_posteriors.py::test_reverse_rule_of_every_field_and_block
the bound (SVGP) | svgp | bounds/svgp.py | gp | test_equivalences.py::test_elbo_is_its_definition_for_both_posteriors
natural step | natural | optim/natural/step.py | gp | test_equivalences.py::test_one_natural_step_of_size_one_is_the_optimum
collapsed bound (SGPR) | collapsed | collapsed/sgpr.py | gp | bounds/test_collapsed.py::test_value_gradient_and_optimum
the tighter collapsed bound | collapsed | collapsed/tighter.py | orthogonal | bounds/test_tighter.py::test_value_and_gradient_by_definition
bounds of the exact evidence from above | certificate | collapsed/certificate.py | certificate | bounds/test_certificate.py::test_both_bounds_follow_their_definition
SOLVE-GP, marginals and KL | orthogonal | posteriors/orthogonal.py | orthogonal | posteriors/test_orthogonal.py::test_marginals_joint_and_kl_by_definition
SOLVE-GP, reverse rule | orthogonal | posteriors/orthogonal.py | orthogonal | posteriors/test_orthogonal.py::test_reverse_rule_of_every_field
t-SVGP, value and gradient | dual | sites/site_svgp.py | dual_sites | bounds/test_site_svgp.py::test_the_bound_and_its_gradient_by_definition
L-SVGP | inverse_free | posteriors/likelihood_form.py | gp | posteriors/test_likelihood_form.py::test_pseudo_targets_give_the_exact_posterior
R-SVGP | inverse_free | posteriors/relaxed.py | inverse_free | posteriors/test_relaxed.py::test_proposition_2
a whitened bound from products | inverse_free | posteriors/inverse_free_whitened.py | inverse_free_whitened | posteriors/test_inverse_free_whitened.py::test_exact_root_gives_the_whitened_bound
the iteration for an inverse factor | inverse_free | optim/inverse/iteration.py | inverse_factor | optim/test_inverse_factor.py::test_step_is_the_update_of_the_paper
expected log densities, predictive densities | likelihoods | likelihoods/averages.py | likelihoods | likelihoods/test_likelihood_values.py::test_expected_and_predictive_log_density
distribution functions | likelihoods | likelihoods/quantiles.py | predictive | likelihoods/test_quantiles.py::test_cdf_is_the_average_of_conditional_cdfs
several latent functions | latents | latents/mixing.py | gp | latents/test_latent_identities.py::test_a_model_follows_its_definition
moments at uncertain inputs | uncertain_inputs | uncertain/closed_form.py | uncertain | uncertain/test_closed_form.py::test_moments_by_definition
convolutional layers | layers | layers/convolutional.py | patches | layers/test_convolutional_layer.py::test_value_and_gradients_follow_the_definition
random Fourier features | weight_space | kernels/cpu/fourier/__init__.py | fourier | kernels/test_fourier.py::test_against_the_feature_matrix
random Fourier features, reverse | weight_space | kernels/cpu/fourier/sweep.py | fourier | kernels/test_fourier.py::test_vjp
mean effects and their bands | index | sensitivity/mean_effects.py | sensitivity | sensitivity/test_effects.py::test_bands_are_those_of_the_average_under_the_joint_posterior
Sobol' indices | index | sensitivity/sobol_indices.py | sensitivity | sensitivity/test_sobol.py::test_indices_of_a_posterior_mean_are_those_of_all_combinations
the oracles' own gradients | index | - | gp_gradients | test_gradient_oracles.py::test_gradient_oracle_follows_the_definition
"""


@functools.cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path):
    """Return the modules of tests that a module imports: their paths by local name."""
    found = {}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                base = TESTS.joinpath(*node.module.split("."))
                for file in (base / f"{alias.name}.py", base.with_suffix(".py")):
                    if file.is_file():
                        found[alias.asname or alias.name] = file
                        break
    return found


def reached(path, seen=None):
    """Return the files that a test module reaches by its imports."""
    seen = {path} if seen is None else seen
    for file in {*imported(path).values()} - seen:
        seen.add(file)
        reached(file, seen)
    return seen


def body(path, name):
    """Return the definition of a function at the top of a module, or None."""
    wanted = (n for n in parsed(path).body if isinstance(n, ast.FunctionDef) and n.name == name)
    return next(wanted, None)


def tolerances(path, name, depth=DEPTH, seen=()):
    """Return the tolerances in a function, and in the helpers that it calls."""
    function = body(path, name)
    if function is None or (path, name) in seen or depth < 0:
        return set()
    named = function.args.posonlyargs + function.args.args
    defaults = function.args.defaults
    paired = zip(named[len(named) - len(defaults) :], defaults, strict=True)
    found = {(a.arg, ast.unparse(d)) for a, d in paired if a.arg in WORDS}
    modules = imported(path)
    for node in ast.walk(function):
        if isinstance(node, ast.keyword) and node.arg in WORDS:
            found.add((node.arg, ast.unparse(node.value)))
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                where = (modules.get(called.id, path), called.id)
            elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                where = (modules.get(called.value.id), called.attr)
            else:
                continue
            if where[0] is not None:
                found |= tolerances(*where, depth - 1, (*seen, (path, name)))
    return found


def said(found):
    """Return tolerances as text: numbers, largest first; expressions count as relative rounding."""
    numbers, rounding = {"rtol": set(), "atol": set(), "slack": set()}, False
    for word, text in found:
        try:
            numbers[word].add(float(text))
        except ValueError:
            rounding = rounding or "eps" in text
    parts = [f"{word} {max(of):g}" for word, of in numbers.items() if of and max(of) > 0]
    return ", ".join(parts + ["multiples of rounding"] * rounding) or "see the test"


def rows():
    """Yield the cells of each formula; raise ``SystemExit`` if the sources do not bear it out."""
    for line in FORMULAS.strip().splitlines():
        formula, theory, module, oracle, test = (cell.strip() for cell in line.split("|"))
        page, source = ROOT / "docs" / "theory" / f"{theory}.md", ROOT / "fastsvgp" / module
        dense = TESTS / "oracles" / f"{oracle}.py"
        path, name = test.split("::")
        path = TESTS / path
        for needed in (page, dense, path, *([] if module == "-" else [source])):
            if not needed.is_file():
                raise SystemExit(f"{formula}: {needed.relative_to(ROOT)} does not exist")
        if body(path, name) is None:
            raise SystemExit(f"{formula}: no test {test}")
        if dense not in reached(path):
            raise SystemExit(f"{formula}: {test} does not reach oracles/{oracle}.py")
        if any(
            re.search(r"import.*fastsvgp|from fastsvgp", f.read_text("utf-8"))
            for f in reached(dense)
        ):
            raise SystemExit(f"{formula}: oracles/{oracle}.py imports the package")
        code = "" if module == "-" else f", `{module}`"
        link = f"[{theory}](theory/{theory}.md){code}"
        yield formula, link, f"`{oracle}`", f"`{test}`", said(tolerances(path, name))


def rendered(page):
    """Return the text of a page with its table written again."""
    lines = [
        "| formula | derivation | oracle | test | largest tolerances |",
        "| --- | --- | --- | --- | --- |",
        *("| " + " | ".join(row) + " |" for row in rows()),
    ]
    before, _, after = page.partition(BEGIN)
    return before + BEGIN + "\n".join(lines) + "\n" + END + after.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
