"""The error type of the command line, and names of options in messages."""

INTERRUPTED = 130  # exit code


class UsageError(ValueError):
    """Arguments that are invalid, alone or with these data: one message, exit code 2."""


def join(names, limit=8):
    """Join names for a message; all beyond ``limit`` are only counted."""
    names = [str(n) for n in names]
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def option_of(name):
    """Return the option of an argument."""
    return f"--{name.replace('_', '-')}"


def refuse_beside(method, methods, **given):
    """Refuse arguments, by name, with a ``method`` other than those that use them."""
    for name, value in given.items():
        if value is not None and value is not False and method not in methods:
            option, use = option_of(name), (" and " if len(methods) == 2 else ", ").join(methods)
            what = f"with {method} leave it out" if method else f"give it, or leave {option} out"
            raise UsageError(f"{option} is for --method {use}; {what}")
