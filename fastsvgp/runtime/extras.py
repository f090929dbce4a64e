"""Advice on installing optional packages, shared by all messages that give it."""


def install_hint(extra, *others):
    """Return the command that installs an extra of fastsvgp; ``others`` are alternative extras."""
    alternative = f", or {' or '.join(others)} instead" if others else ""
    package = install_package(f'"fastsvgp[{extra}]"')
    return f'{package} (in a checkout: ".[{extra}]"{alternative})'


def install_package(name):
    """Return the command that installs another package."""
    return f"python -m pip install {name}"
