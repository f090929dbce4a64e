"""Every check that a user meets: types, shapes, dtypes, values.

Rooms below the public edge trust their arguments.

A message names the argument, what came, and what to do.
"""

from .models import (
    ABSENT as ABSENT,
    DEFAULT_JITTER as DEFAULT_JITTER,
    PARTIAL as PARTIAL,
    all_finite as all_finite,
    as_array as as_array,
    backend_of as backend_of,
    columns as columns,
    common_dtype as common_dtype,
    data_scale as data_scale,
    defer as defer,
    deferred as deferred,
    drawn as drawn,
    finite as finite,
    flag as flag,
    generator as generator,
    inducing as inducing,
    inputs as inputs,
    jitter_amount as jitter_amount,
    mapping as mapping,
    names as names,
    one_column as one_column,
    one_device as one_device,
    parameters as parameters,
    parts as parts,
    positive as positive,
    random_names as random_names,
    report_clamped as report_clamped,
    result as result,
    scalar as scalar,
    square as square,
    svgp as svgp,
    targets as targets,
    unmasked as unmasked,
    whole as whole,
)
