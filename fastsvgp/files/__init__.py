"""Atomic writes, lock files, and arrays of rows from several files."""

from .atomic import (
    InUse as InUse,
    Path as Path,
    as_path as as_path,
    clear_leftovers as clear_leftovers,
    release_lock as release_lock,
    take_lock as take_lock,
    write_atomically as write_atomically,
)
