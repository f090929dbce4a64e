"""The public objects by dotted name: ``elbo``, ``bounds.tighter_bound``."""

import fastsvgp as fs
from fastsvgp import models, public_names

OBJECTS = {
    name: getattr(fs, name)
    for name in [*(n for names in public_names.OWN.values() for n in names), *public_names.FRONT]
} | {
    f"{module}.{name}": getattr(getattr(fs, module), name)
    for module, files in public_names.MODULES.items()
    for names in files.values()
    for name in names
    if name not in public_names.FRONT
}
# by the name that messages have: with the module only where the name alone is ambiguous
BY_NAME = {
    name if name in models.OFFERED else name.rpartition(".")[2]: thing
    for name, thing in OBJECTS.items()
}
