"""Pictures of mean effects, on axes of Matplotlib that the caller made."""

import numpy as np

COLOUR = "#2c6fbb"
FEW = 12  # values of an input that are drawn as points with bars
SHOWN = 300  # values of rows that have a mark
LONG = 14  # characters of a level


def draw_effect(ax, effect, rows, names=(None,), levels=None):
    """Draw the mean effect of an input with its band, and marks at the values of rows.

    Parameters
    ----------
    ax : Axes
    effect : Effect
        In the units of the picture.
    rows : (N,) array
        Values of the input in the data; not drawn with ``levels``.
    names : sequence of P str or None
        Labels of the functions, for a legend.
    levels : list of G str, optional
        Names of the values of the grid, which are then at 0, 1, 2, ...
    """
    mean, low, high = (np.asarray(part).reshape(len(effect.grid), -1) for part in effect[2:])
    grid = np.arange(len(mean)) if levels is not None else np.asarray(effect.grid)
    bars = levels is not None or len(grid) <= FEW
    for p, name in enumerate(names):
        colour = COLOUR if len(names) == 1 else f"C{p}"
        if bars:
            reach = np.maximum([mean[:, p] - low[:, p], high[:, p] - mean[:, p]], 0)
            ax.errorbar(grid, mean[:, p], yerr=reach, fmt="o", color=colour, label=name, capsize=3)
        else:
            ax.fill_between(grid, low[:, p], high[:, p], color=colour, alpha=0.2, linewidth=0)
            ax.plot(grid, mean[:, p], color=colour, linewidth=1.8, label=name)
    if levels is not None:
        short = [text if len(text) <= LONG else text[: LONG - 1] + "…" for text in levels]
        turned = sum(map(len, short)) > 30
        ax.set_xticks(grid, short, rotation=45 if turned else 0, ha="right" if turned else "center")
    elif not bars:
        marks = np.sort(rows)[np.linspace(0, len(rows) - 1, min(SHOWN, len(rows))).astype(int)]
        at = np.full(len(marks), 0.012)
        transform = ax.get_xaxis_transform()
        ax.plot(marks, at, "|", color="black", alpha=0.35, markersize=5, transform=transform)
