"""Checks of options of the bound that are passed through another framework."""

FOLLOWING = "wrt", "inputs"  # determined by what the framework differentiates


def refuse_following(where, options):
    """Refuse options that select derivatives, because the framework selects them."""
    for name in FOLLOWING:
        if name in options:
            raise TypeError(
                f"{where}: `{name}` is not an option here, because"
                f" {where.partition('.')[2]} selects the derivatives; leave it out"
            )
