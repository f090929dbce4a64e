"""Argument checks of the public functions: types, shapes, dtypes, values.

Inner functions trust their arguments. Each message names the argument, the value received, and the
remedy.
"""

from ..records.dtypes import (
    DEFAULT_JITTER as DEFAULT_JITTER,
    common_dtype as common_dtype,
)
from ..runtime.dispatch import (
    backend_of as backend_of,
    one_device as one_device,
)
from .arrays import (
    all_columns as all_columns,
    all_finite as all_finite,
    as_array as as_array,
    axes_of_targets as axes_of_targets,
    codes as codes,
    columns as columns,
    finite as finite,
    inputs as inputs,
    num_columns as num_columns,
    on_host as on_host,
    one_column as one_column,
    outputs_of as outputs_of,
    positive as positive,
    refuse_masked as refuse_masked,
    row_numbers as row_numbers,
    square as square,
    targets as targets,
)
from .components import (
    PARTIAL as PARTIAL,
    advice_for_class as advice_for_class,
    parts as parts,
)
from .divergence import (
    diverged_error as diverged_error,
)
from .models import (
    ABSENT as ABSENT,
    arguments as arguments,
    defer as defer,
    deferral as deferral,
    draw as draw,
    finite_fields as finite_fields,
    inducing as inducing,
    inducing_for as inducing_for,
    names as names,
    natural as natural,
    parameters as parameters,
    random_names as random_names,
    report_clamped as report_clamped,
    result as result,
    svgp as svgp,
)
from .scalars import (
    data_scale as data_scale,
    flag as flag,
    generator as generator,
    jitter_amount as jitter_amount,
    mapping as mapping,
    scalar as scalar,
    whole as whole,
)
