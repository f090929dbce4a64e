"""Every kernel compiles for every architecture within a committed register budget.

There is no warning, stack frame or spill.
"""

import pathlib

import pytest
from cuda_host import ptxas

from fastsvgp.kernels.cuda.common import loader

# The maximum registers per thread on any architecture. 64 let four blocks of 256 threads share a
# multiprocessor, 80 three, 128 two.
BUDGET = {
    "cholesky": {"factor_block": 128, "factor_panel": 128},
    "deferred_checks": {"find_outside": 40, "report": 40},
    "factorisations": {"check_pivots": 40, "clear_upper": 40, "turn": 40},
    "vectors": {
        "pack": 40,
        "unpack": 40,
        "to_positive": 64,
        "from_positive": 64,
        "through_positive": 64,
        "adam": 40,
        "sum_each": 40,
        "fold_bits": 40,
    },
    "products": {
        "column_moments": 64,
        "scale_columns": 40,
        "combine_rows": 40,
        "add_scaled": 40,
        "add_scaled_by": 40,
        "row_squares": 40,
        "sum_rows": 40,
        "row_kl": 40,
        "raise_to_floor": 40,
        "symmetrise": 40,
        "tril_update": 48,
    },
    "quadrature": {
        "expectation_log_ndtr": 64,
        "expectation_log_sigmoid": 64,
        "expectation_log1p_square": 64,
        "tabulated_average": 80,
        "largest": 112,
        "expected_logsumexp": 80,
        "gaussian_rows": 40,
        "gaussian_total": 40,
        "weighted_gaussian_rows": 48,
        "weighted_gaussian_total": 40,
    },
    "chevron": {
        "multiply_1": 64,
        "multiply_4": 96,
        "log_diagonal": 40,
        "sum_logs": 40,
    },
    "fourier": {
        "frequencies": 40,
        "multiply_1": 104,
        "multiply_4": 120,
        "transposed_1": 96,
        "transposed_4": 104,
        "multiply_vjp_1": 120,
        "multiply_vjp_4": 128,
        "squares_forward_1": 112,
        "squares_backward_1": 104,
        "squares_both_1": 120,
        "squares_slopes_1": 128,
        "own_1": 120,
        "own_4": 128,
        "own_vjp_1": 128,
        "own_vjp_4": 128,
        "sum_parts": 40,
        "column_products": 40,
    },
    "newton_schulz": {
        "sum_deviations": 40,
        "sum_inner": 40,
        "symmetric_times": 40,
        "sum_parts": 40,
        "decide": 48,
    },
    "pairwise": {
        "matrix": 128,
        "inner": 128,
        "contract_rows": 128,
        "contract_both": 128,
        "squared_distances": 64,
        "sum_sides": 40,
        "sum_parts": 40,
    },
    "pairwise_wide": {
        "invert": 40,
        "centre": 40,
        "move": 40,
        "finish": 80,
        "weigh": 80,
        "add_near": 128,
    },
    "patches": {
        "sums": 128,
        "contract": 128,
        "gather": 40,
        "scatter": 40,
    },
    "sparse_rows": {
        "gather": 40,
        "sort_runs": 40,
        "merge_runs": 40,
        "mark_first": 40,
        "list_distinct": 40,
        "add_rows": 40,
        "adagrad": 40,
        "draw_units": 64,
    },
    "tiled": {"multiply": 160},  # blocks of 128 threads: three fit
    "triangular": {"solve": 128},
    "nonuniform": {"find_exponent": 40, "settle": 40, "spread": 80, "interpolate": 64},
    "vecchia": {"forward": 64, "residual_bars": 64, "contribute": 48, "place": 40},
}
STEMS = sorted(p.stem for p in pathlib.Path(loader.source_folder()).glob("*.cu"))
EVERY = [(architecture, dtype) for architecture in ptxas.ARCHITECTURES for dtype in loader.C_NAMES]
# nvcc takes a minute and a half for these: the H200's in full, each of the others in one dtype. CI
# runs all six of NVRTC.
SOME = [("80", "float32"), ("90a", "float32"), ("90a", "float64"), ("100", "float64")]
JOBS = [
    (compiler, *pair) for compiler, pairs in (("nvrtc", EVERY), ("nvcc", SOME)) for pair in pairs
]


def test_every_family_has_a_budget():
    assert sorted(BUDGET) == STEMS


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("compiler, architecture, dtype", JOBS)
def test_compiles_within_budget(compiler, stem, architecture, dtype):
    if reason := ptxas.why_not(compiler):
        pytest.skip(reason)
    log = ptxas.log_of(compiler, stem, dtype, architecture)
    assert "warning" not in log, log
    kernels = ptxas.usage(log)
    assert set(kernels) == set(BUDGET[stem])
    for name, used in kernels.items():
        assert used["stack"] == used["spilled"] == 0, (name, used)
        assert used["registers"] <= BUDGET[stem][name], (name, used)
