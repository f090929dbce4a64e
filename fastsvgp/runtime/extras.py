"""How to install optional packages, in the words of every message that advises it."""


def install_hint(extra, *others):
    """How to get an extra of this package, from wherever it was installed; ``others`` are extras that may take its place."""
    alternative = f", or {' or '.join(others)} in its place" if others else ""
    package = install_package(f'"fastsvgp[{extra}]"')
    return f'{package} (in a checkout: ".[{extra}]"{alternative})'


def install_package(name):
    """How to get a package of other people."""
    return f"python -m pip install {name}"
