"""The error type of the command line, and lists of names in messages."""


class UsageError(ValueError):
    """Arguments that are invalid, alone or with these data: one message, exit code 2."""


def shown(names, limit=8):
    """Join names for a message; all beyond ``limit`` are only counted."""
    names = [str(n) for n in names]
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
