"""Sizes of chunks and thresholds: one record for the whole package, read at each call.

``tuning.current.bound_chunk_columns`` is the value in force. ``tuning.override(...)`` is for tests
that force many chunks or a rare branch on small data. Results do not depend on the sizes of chunks,
except for rounding. Constants of compiled kernels stay beside them, in ``kernels``.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .thresholds import EXACT_ROWS

_lock = threading.Lock()


@dataclass(frozen=True)
class Tuning:
    """Sizes and thresholds, each with its unit. Memory is that of float64.

    Parameters
    ----------
    bound_chunk_numbers : numbers
        In an (M, chunk) array of a bound: 8 MiB. Larger chunks have longer products and wait less
        often for another thread; half as large ones take 1.01 to 1.15 times as long, larger ones
        only more memory. ``bench/bench_step.py`` times it.
    bound_chunk_columns : rows of data
        Least number in a chunk of a bound: products with fewer columns are slower.
        ``bench/bench_step.py`` times it.
    bound_chunk_numbers_on_device : numbers
        As ``bound_chunk_numbers``, on a device: 2 GiB. Long products are fastest there, and only
        memory limits them. ``bench/bench_step.py`` times it.
    triangle_rows : rows of a lower triangle
        Least number for each thread, if each computes some of the rows of a Gram matrix or of half
        a product; with fewer, the threads of BLAS share it. ``bench/product_rates.py`` times both.
    own_cholesky_rows : rows of a matrix
        On a device, up to which our own kernels factor it, which a captured step can always
        contain; cuSOLVER factors larger ones. Chosen by counting; ``bench/sweeps.py`` times both.
    cached_projection_numbers : numbers
        In Lam = L^-1 Kuf of all data, up to which natural steps on the same data cache it: 512 MiB.
        Memory for a solve per step. ``bench/bench_dual.py`` times ten such steps.
    shared_block_numbers : numbers
        In Kuf and Lam, up to which a natural step keeps them for the gradient after it: 64 MiB.
        Memory for a block and a solve. ``bench/natural_peers.py`` times such steps.
    prediction_cache_numbers : numbers
        In the P (M, N) arrays that the pass of ``predict_f_and_vjp`` caches: 128 MiB, and two more
        (M, N) arrays. Memory for a second forward pass.
    joint_step_rows : rows
        Of the system of a joint natural step of a ``MultiGP``: 128 MB. With more the latent
        functions move one after the other.
    decoupled_run_numbers : numbers
        In a run of rows of O against other inputs: three runs stay in a 16 MiB cache.
        ``bench/bench_orthogonal.py`` times it.
    decoupled_form_rows : rows of K_vv
        In a piece of its quadratic form. Longer pieces have longer products and compute more of the
        diagonal pieces twice. ``bench/bench_orthogonal.py`` times it.
    collapsed_chunk_rows : rows of data
        Least number in a chunk of the collapsed bound's value; shorter data are one chunk.
        ``bench/bench_step.py`` times it.
    tighter_block_rows : rows of K_ff
        In a block of the tighter bound: with more, more of the diagonal blocks is computed twice.
        ``bench/bench_orthogonal.py`` times it.
    site_run_numbers : numbers
        In an (M, chunk) array of the sums over sites: 32 MiB. ``bench/bench_dual.py`` times it.
    feature_panel_numbers : numbers
        In a panel of features of a joint prediction, inputs by functions: 16 MiB. Memory for longer
        products.
    basis_panel_numbers : numbers
        In a panel of an ``InducingBasis``, functions by inputs: 8 MiB. ``bench/bench_qsgp.py``
        times it.
    weight_chunk_rows : rows of data
        In a chunk of ``optimal_weights`` and ``optimal_diagonal``. Memory for longer products.
    fewest_block_rows : rows of data
        Least block of ``optimal_weights`` by blocks, if it is not given.
    most_block_rows : rows of data
        Largest such block. Larger blocks need fewer epochs, and a factor each.
    feature_codes : codes
        In the features of a ``Categorical``: a function has one weight per code, times those of the
        other factors of a product.
    window_chunk_numbers : numbers
        In a matrix between windows of images at a time: 1 MiB, which stays in cache.
        ``bench/bench_patches.py`` times it.
    window_chunk_numbers_on_device : numbers
        As ``window_chunk_numbers``, on a device: 128 MiB.
    window_range : windows
        In a range, if the weights of their pairs are formed as an array: this number squared is the
        size of the array. ``bench/bench_patches.py`` times it.
    relevance_rows : rows of data
        Of the exact process that finds relevances. Up to this number all rows can be inducing
        inputs, and relevances would gain nothing. ``bench/results/few_inputs.md`` has its gain.
    relevance_iterations : iterations of L-BFGS
        Of that process: with ``relevance_rows`` about five seconds on one core.
    retry_rows : distinct rows
        Up to which a training that found nothing is repeated with all of them as inducing inputs,
        and up to which advice names them; with more, minibatches come first.
    race_seconds : seconds
        Of a search, below which one candidate trains without a race. ``bench/results/defaults.md``
        has scores by time.
    estimator_seconds : seconds of work
        Of the search of an estimator without a time budget, for no rows: each 500 rows add one.
    exact_rows : rows of data
        Of a search for a regression, up to which an exact process is the first candidate: the cost
        of an iteration is cubic.
    useless_density : nats per row
        Log density of standardised targets up to which a model of a search is useless; the constant
        mean has -1.42.
    unusual_factor : factor
        On a variance or on the noise that a search reports, as its inverse.
    search_chunk_rows : rows of data
        In a chunk of a search's collapsed posterior. Memory for longer products.

    Examples
    --------
    >>> from fastsvgp.runtime import tuning
    >>> tuning.current.bound_chunk_columns
    1024
    """

    bound_chunk_numbers: int = 2**20
    bound_chunk_columns: int = 1024
    bound_chunk_numbers_on_device: int = 2**28
    triangle_rows: int = 96
    own_cholesky_rows: int = 4096
    cached_projection_numbers: int = 2**26
    shared_block_numbers: int = 2**23
    prediction_cache_numbers: int = 2**24
    joint_step_rows: int = 4000
    decoupled_run_numbers: int = 2**19
    decoupled_form_rows: int = 1024
    collapsed_chunk_rows: int = 1024
    tighter_block_rows: int = 256
    site_run_numbers: int = 2**22
    feature_panel_numbers: int = 2**21
    basis_panel_numbers: int = 2**20
    weight_chunk_rows: int = 4096
    fewest_block_rows: int = 500
    most_block_rows: int = 2000
    feature_codes: int = 32
    window_chunk_numbers: int = 2**17
    window_chunk_numbers_on_device: int = 2**24
    window_range: int = 384
    relevance_rows: int = 1000
    relevance_iterations: int = 25
    retry_rows: int = EXACT_ROWS
    race_seconds: float = 4.0
    estimator_seconds: float = 8.0
    exact_rows: int = EXACT_ROWS
    useless_density: float = -1.36
    unusual_factor: float = 5.0
    search_chunk_rows: int = 4096


current = Tuning()
_active: list[dict[str, Any]] = []  # the fields of each context, in the order of their starts


@contextmanager
def override(**changes: Any) -> Iterator[Tuning]:
    """Replace fields of ``current`` for all threads of this process, within the context.

    Contexts nest, and threads can enter and leave them in any order: the field of the latest
    context that is still active holds.

    Examples
    --------
    >>> from fastsvgp.runtime import tuning
    >>> with tuning.override(bound_chunk_columns=5):
    ...     tuning.current.bound_chunk_columns
    5
    """
    replace(current, **changes)  # refuses unknown fields
    with _lock:
        _active.append(changes)
        _apply()
    try:
        yield current
    finally:
        with _lock:
            _active[:] = [one for one in _active if one is not changes]
            _apply()


def _apply():
    global current
    current = Tuning(**{name: value for one in _active for name, value in one.items()})
