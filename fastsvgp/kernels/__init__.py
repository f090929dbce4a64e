"""Compute kernels: array functions that know nothing about Gaussian processes.

Each family has a module here (its front door), which documents every operation once. The location
of the arrays decides which implementation runs: the module of the same name in ``cpu/`` (Numba,
LAPACK) or in ``cuda/``. Arguments are not checked here, but by the functions that call these.
Matrices may have any strides. Results are C-contiguous and have the dtype of the arrays.

The reverse rule of ``op`` is ``op_vjp(output_bar, ...)``. These operations have one: ``cholesky``
and ``cholesky_inverse``; ``solve_triangular``, ``multiply_triangular``, ``solve_tril`` and
``inverse_triangular``; ``newton_schulz_step``; ``near_rows``; ``normal_bumps`` and
``normal_rises``; ``stationary``, ``inner`` and ``squared_distances``; ``gather_patches``,
``patch_sums`` and ``patch_pair_sums``; ``fourier_multiply_rows``; ``gauss_hermite`` with its
nodes; ``to_positive``. ``whitening_vjp`` is the rule of factor and solve together;
``whitened_cotangents`` and ``whitened_bars`` are that of ``whitened_marginals`` and
``whitened_kl``. ``fourier_sweep``, ``whitened_step``, ``expectation``, ``tabulated_average``,
``largest``, ``expected_logsumexp`` and ``gaussian_term`` return derivatives with their values. All
others have no rule, among them ``tril_*``, ``chevron_*``, ``cholesky_product``,
``cholesky_of_inverse`` and the operations of ``products``. ``spread_to_grid`` and
``interpolate_grid`` are linear, and each other's adjoint.

All operations raise ``TypeError`` when some arrays are on a GPU and others are not (0-d NumPy
arrays are always accepted). The message names the arguments.
"""

from ..public_names import offer_defined
from .chevron import chevron_log_det as chevron_log_det, chevron_multiply as chevron_multiply
from .factorisations import (
    cholesky as cholesky,
    cholesky_inverse as cholesky_inverse,
    cholesky_inverse_vjp as cholesky_inverse_vjp,
    cholesky_of_inverse as cholesky_of_inverse,
    cholesky_product as cholesky_product,
    cholesky_vjp as cholesky_vjp,
    deflate as deflate,
    whitening_vjp as whitening_vjp,
)
from .fourier import (
    fourier_frequencies as fourier_frequencies,
    fourier_multiply as fourier_multiply,
    fourier_multiply_rows as fourier_multiply_rows,
    fourier_multiply_rows_vjp as fourier_multiply_rows_vjp,
    fourier_sweep as fourier_sweep,
)
from .newton_schulz import (
    newton_schulz_curvature as newton_schulz_curvature,
    newton_schulz_gram as newton_schulz_gram,
    newton_schulz_step as newton_schulz_step,
    newton_schulz_step_vjp as newton_schulz_step_vjp,
    newton_schulz_update as newton_schulz_update,
    newton_schulz_walk as newton_schulz_walk,
    power_iteration as power_iteration,
    tril_congruence as tril_congruence,
)
from .nonuniform import interpolate_grid as interpolate_grid, spread_to_grid as spread_to_grid
from .normal_inputs import (
    normal_bumps as normal_bumps,
    normal_bumps_vjp as normal_bumps_vjp,
    normal_rise_sums as normal_rise_sums,
    normal_rises as normal_rises,
    normal_rises_vjp as normal_rises_vjp,
)
from .pairwise import (
    inner as inner,
    inner_vjp as inner_vjp,
    squared_distances as squared_distances,
    squared_distances_vjp as squared_distances_vjp,
    stationary as stationary,
    stationary_vjp as stationary_vjp,
)
from .patches import (
    gather_patches as gather_patches,
    gather_patches_vjp as gather_patches_vjp,
    patch_pair_sums as patch_pair_sums,
    patch_pair_sums_vjp as patch_pair_sums_vjp,
    patch_sums as patch_sums,
    patch_sums_vjp as patch_sums_vjp,
    window_places as window_places,
)
from .products import (
    add_outer as add_outer,
    add_outer_minus_scaled as add_outer_minus_scaled,
    add_scaled as add_scaled,
    chunk_numbers as chunk_numbers,
    column_moments as column_moments,
    empty as empty,
    full as full,
    kl_from_standard as kl_from_standard,
    matmul as matmul,
    raise_to_floor as raise_to_floor,
    scale_add_outer as scale_add_outer,
    scale_columns as scale_columns,
    symmetrise as symmetrise,
    tril_sum_of_squares as tril_sum_of_squares,
    tril_update as tril_update,
    weighted_gram as weighted_gram,
)
from .quadrature import (
    expectation as expectation,
    expected_logsumexp as expected_logsumexp,
    gauss_hermite as gauss_hermite,
    gauss_hermite_nodes as gauss_hermite_nodes,
    gauss_hermite_vjp as gauss_hermite_vjp,
    gaussian_term as gaussian_term,
    largest as largest,
    log_gauss_hermite as log_gauss_hermite,
    normal_points as normal_points,
    tabulated_average as tabulated_average,
)
from .small_whitened import (
    whitened_bars as whitened_bars,
    whitened_cotangents as whitened_cotangents,
    whitened_kl as whitened_kl,
    whitened_marginals as whitened_marginals,
    whitened_natural_step as whitened_natural_step,
    whitened_step as whitened_step,
    whitened_sums as whitened_sums,
)
from .sparse_rows import (
    adagrad_rows as adagrad_rows,
    gather_rows as gather_rows,
    stratified_units as stratified_units,
    sum_rows as sum_rows,
)
from .triangular import (
    inverse_triangular as inverse_triangular,
    inverse_triangular_vjp as inverse_triangular_vjp,
    multiply_triangular as multiply_triangular,
    multiply_triangular_vjp as multiply_triangular_vjp,
    prefers_inverse as prefers_inverse,
    solve_triangular as solve_triangular,
    solve_triangular_vjp as solve_triangular_vjp,
    solve_tril as solve_tril,
    solve_tril_vjp as solve_tril_vjp,
    tril as tril,
    tril_gram as tril_gram,
    tril_multiply as tril_multiply,
    tril_product as tril_product,
)
from .vecchia import near_rows as near_rows, near_rows_vjp as near_rows_vjp
from .vectors import (
    adam as adam,
    fold_bits as fold_bits,
    from_positive as from_positive,
    pack_fields as pack_fields,
    pack_tril as pack_tril,
    sum_each as sum_each,
    to_positive as to_positive,
    to_positive_vjp as to_positive_vjp,
    unpack_fields as unpack_fields,
    unpack_tril as unpack_tril,
)

__getattr__, __dir__ = offer_defined(__name__)
