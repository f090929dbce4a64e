"""Records: models and their parts are frozen; their leaves, structure and files.

Come here to read, replace or map the numbers of a model, to save it with more than itself, and to
read rows from files.
"""

from ..public_names import offer
from .decorator import (
    REGISTRY as REGISTRY,
    Blocks as Blocks,
    Marginals as Marginals,
    data as data,
    is_ours as is_ours,
    is_parts as is_parts,
    is_record as is_record,
    leaf as leaf,
    private_record as private_record,
    record as record,
    static as static,
)
from .tree import (
    build as build,
    flat as flat,
    leaves as leaves,
    matches as matches,
    missing as missing,
    plus as plus,
    replace as replace,
    replace_at as replace_at,
    replace_leaves as replace_leaves,
    restricted as restricted,
    total as total,
    tree_map as tree_map,
)

__getattr__, __dir__, __all__ = offer("records")
