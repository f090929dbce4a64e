"""``fastsvgp export``: a fitted model as a file that needs no fastsvgp."""

import numpy as np

import fastsvgp as fs

from ..exporting.write import write_source
from .errors import UsageError, join
from .fitted import Fitted
from .kinds import options
from .mpi import refuse_copies


def run(args):
    """Write the file, and say what it reads and predicts."""
    refuse_copies("start one copy, without the launcher")
    if args.float32 and not args.out.endswith(".onnx"):
        raise UsageError("--float32 is for FILE.onnx: source of C and Python computes in float64")
    fitted, dtype = Fitted.load(args.model), np.float32 if args.float32 else None
    try:
        made = fs.predictor(fitted.model, dtype=dtype, **options(fitted.model, fitted.jitter))
        files = write_source(made, args.out, fitted.scale, fitted.input_names, fitted.classes or ())
    except (ImportError, TypeError, ValueError) as error:  # also: a part that cannot be exported
        raise UsageError(str(error).removeprefix("export: ")) from error
    names = fitted.target_name if fitted.several else [fitted.target_name]
    print(f"wrote {' and '.join(files)}: {join(names)} from {join(fitted.input_names)}")
    if fitted.encoding is not None:
        print("these inputs are the columns of the table as the model encodes them")
    return 0
