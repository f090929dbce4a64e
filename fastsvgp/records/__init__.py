"""What a model is made of: frozen records, their leaves, files."""

from .decorator import (
    REGISTRY as REGISTRY,
    Blocks as Blocks,
    Marginals as Marginals,
    is_parts as is_parts,
    is_record as is_record,
    leaf as leaf,
    leaves as leaves,
    matches as matches,
    missing as missing,
    plus as plus,
    private_record as private_record,
    record as record,
    replace as replace,
    replace_at as replace_at,
    restricted as restricted,
    static as static,
    total as total,
    tree_map as tree_map,
)
