"""What the command line says when it is asked for something it cannot do."""


class UsageError(ValueError):
    """An argument, or a combination of arguments and data, that cannot work: one message, exit code 2."""


def shown(names, limit=8):
    """A list of names for a message, cut to a readable length."""
    names = [str(n) for n in names]
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
