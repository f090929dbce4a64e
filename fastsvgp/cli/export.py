"""``fastsvgp export``: a fitted model as source that needs no fastsvgp."""

import fastsvgp as fs

from ..exporting.write import write_source
from .errors import UsageError, join
from .fitted import Fitted, options
from .mpi import refuse_copies


def run(args):
    """Write the source, and say what it reads and predicts."""
    refuse_copies("start one copy, without the launcher")
    fitted = Fitted.load(args.model)
    try:
        made = fs.predictor(fitted.model, **options(fitted.model, fitted.jitter))
        files = write_source(made, args.out, fitted.scale, fitted.input_names, fitted.classes or ())
    except (TypeError, ValueError) as error:  # a part that cannot be exported, or a bad file name
        raise UsageError(str(error).removeprefix("export: ")) from error
    names = fitted.target_name if fitted.several else [fitted.target_name]
    print(f"wrote {' and '.join(files)}: {join(names)} from {join(fitted.input_names)}")
    if fitted.encoding is not None:
        print("these inputs are the columns of the table as the model encodes them")
    return 0
