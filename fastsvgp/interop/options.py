"""Options of the bound that pass through a module of somebody else's library."""

FOLLOWING = "wrt", "inputs"  # from what that library differentiates


def refuse_following(where, options):
    """Refuse options that say what is differentiated: that is asked in the library's own way."""
    for name in FOLLOWING:
        if name in options:
            raise TypeError(
                f"{where}: `{name}` is no option here, since what is differentiated is what"
                f" {where.partition('.')[2]} asks for; leave it out"
            )
