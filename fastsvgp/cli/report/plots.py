"""PNG plots of a fit.

Matplotlib is optional. Without it plots are skipped, with a note on how to install it.
"""

import io

import numpy as np

from ...sensitivity.drawing import draw_effect
from .metrics import coverage

BLUE, ORANGE, GREY = "#2c6fbb", "#d9661f", "#8a8a8a"
INTERVAL = 0.025, 0.975  # levels of the drawn intervals
MANY = 1000  # rows above which a density and a sample of intervals are drawn
SAMPLE = 40
PATCHES = 144
SMALL = 4  # pictures of residuals
LEAST = 5  # fewest rows per bin of the reliability curve


def available():
    """Whether Matplotlib can be imported."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def _figure(panels, title, width=5.2, height=4.2, columns=None, sharey=False):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(panels, columns or panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for ax in axes[panels:]:
        ax.set_axis_off()
    axes = axes[:panels]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.2, linewidth=0.6)
        ax.set_axisbelow(True)
    figure.suptitle(title, fontsize="medium")
    return figure, axes


def png(figure):
    """Return a figure as bytes of a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def training_curve(values, per, title):
    """Plot the bound at each step, divided by ``per`` data points."""
    figure, (ax,) = _figure(1, title, width=7.0)
    steps, values = np.arange(1, len(values) + 1), np.asarray(values, float) / per
    window = max(1, len(values) // 50)
    if window > 1:
        ax.plot(steps, values, color=BLUE, alpha=0.25, linewidth=0.7, label="each step")
        smooth = np.convolve(values, np.full(window, 1 / window), mode="valid")
        ax.plot(
            steps[window // 2 :][: len(smooth)],
            smooth,
            color=BLUE,
            linewidth=1.8,
            label=f"mean of {window} steps",
        )
        ax.legend(frameon=False, loc="lower right")
    else:
        ax.plot(steps, values, color=BLUE, linewidth=1.8, marker="o" if len(values) < 3 else None)
    low, high = np.percentile(values, [5, 100])
    if high > low:  # the first steps can be far below the range of interest
        ax.set_ylim(low - 0.25 * (high - low), high + 0.05 * (high - low))
    ax.set_xlabel("step")
    ax.set_ylabel("ELBO per data point (nats)")
    return figure


def fit_1d(train, test, grid, mean, interval, inducing, names, title):
    """Plot data, predictive mean and 95 % interval over one input, in original units.

    ``train`` and ``test`` are (x, y); ``inducing`` has one or two sets of inducing inputs.
    """
    figure, (ax,) = _figure(1, title, width=7.6)
    ax.fill_between(grid, *interval, color=BLUE, alpha=0.18, linewidth=0, label="95 % interval")
    ax.plot(grid, mean, color=BLUE, linewidth=1.8, label="mean")
    size = 14 if len(train[0]) < 1000 else 4
    ax.scatter(*train, s=size, color=GREY, alpha=0.6, linewidths=0, label="training data")
    if len(test[0]):
        ax.scatter(*test, s=size + 4, color=ORANGE, linewidths=0, label="held-out data")
    labels = (
        ("inducing inputs",) if len(inducing) == 1 else ("inducing inputs Z", "inducing inputs O")
    )
    for inputs, height, colour, label in zip(
        inducing, (0.015, 0.045), ("black", ORANGE), labels, strict=False
    ):
        at = np.full(len(inputs), height)
        ax.plot(
            inputs,
            at,
            "|",
            color=colour,
            markersize=8,
            transform=ax.get_xaxis_transform(),
            label=label,
        )
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    ax.legend(
        frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14)
    )
    return figure


def predicted_against_true(y, mean, interval, pit, name, title):
    """Plot predictive means against held-out targets, and the coverage of central intervals.

    ``interval`` is the pair of its ends (N,). ``pit`` is a pair: the predictive distribution
    function just below each target and at it, which differ for counts.
    """
    figure, (left, right) = _figure(2, title)
    ends = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    if len(y) > MANY:
        left.hexbin(
            y,
            mean,
            gridsize=60,
            bins="log",
            mincnt=1,
            cmap="Blues",
            linewidths=0,
            extent=(*ends, *ends),
        )
        order = np.argsort(y)
        # spread over the targets
        shown = order[np.unique(np.searchsorted(y[order], np.linspace(*y[order[[0, -1]]], SAMPLE)))]
        colour, alpha, what = ORANGE, 0.7, f"density, and {len(shown)} of {len(y)} intervals"
    else:
        left.scatter(y, mean, s=12, color=BLUE, alpha=0.7, linewidths=0)
        shown, colour, alpha, what = (
            slice(None),
            BLUE,
            0.15 if len(y) > 100 else 0.3,
            "predicted against true",
        )
    low, high = (np.where(np.isfinite(end), end, np.nan)[shown] for end in interval)
    left.vlines(y[shown], low, high, color=colour, alpha=alpha, linewidth=0.8)
    left.plot(ends, ends, color="black", linewidth=0.9, linestyle="--")
    left.set_xlabel(f"true {name}")
    left.set_ylabel(f"predicted {name} (mean, 95 % interval)")
    left.set_title(f"Held-out rows: {what}", fontsize="medium")

    nominal = np.linspace(0, 1, 41)
    error = 2 * np.sqrt(nominal * (1 - nominal) / len(y))
    band = np.clip(nominal - error, 0, 1), np.clip(nominal + error, 0, 1)
    right.fill_between(
        nominal,
        *band,
        color=GREY,
        alpha=0.18,
        linewidth=0,
        label=f"± 2 standard errors of {len(y)} rows",
    )
    right.plot(
        [0, 1], [0, 1], color="black", linewidth=0.9, linestyle="--", label="perfectly calibrated"
    )
    right.plot(nominal, coverage(*pit, nominal), color=BLUE, linewidth=1.8, label="model")
    right.set_xlabel("nominal coverage of the interval")
    right.set_ylabel("share of held-out targets inside")
    right.set_title("Calibration", fontsize="medium")
    right.legend(frameon=False, loc="upper left", fontsize="small")
    return figure


def effects(found, rows, inputs, labels, what, title):
    """Plot mean effects in the units of the data, each with its values (N,) of rows."""
    figure, axes = _figure(len(found), title, 3.8, 3.0, columns=2, sharey=True)
    for ax, effect, values, one in zip(axes, found, rows, inputs, strict=True):
        draw_effect(ax, effect, values, labels, one.levels)
        ax.set_xlabel(one.name)
    for ax in axes[::2]:
        ax.set_ylabel(what)
    if len(labels) > 1:
        axes[0].legend(frameon=False, fontsize="small")
    return figure


def residuals(left, against, title):
    """Plot residuals (N,) of held-out rows against the first ``SMALL`` of these values, by name."""
    shown = np.unique(np.linspace(0, len(left) - 1, min(MANY, len(left))).astype(int))
    against = dict(list(against.items())[:SMALL])
    figure, axes = _figure(len(against), title, 3.8, 3.0, columns=2, sharey=True)
    for ax, (name, values) in zip(axes, against.items(), strict=True):
        ax.scatter(values[shown], left[shown], s=10, color=BLUE, alpha=0.6, linewidths=0)
        ax.axhline(0, color="black", linewidth=0.9, linestyle="--")
        ax.set_xlabel(name)
    for ax in axes[::2]:
        ax.set_ylabel("true - predicted")
    return figure


def inducing_patches(patches, weights, title):
    """Plot at most ``PATCHES`` inducing patches (M, h, w, C), and the weights of the windows."""
    figure, (left, right) = _figure(2, title, width=4.6)
    shown = patches[:PATCHES, ..., :3] if patches.shape[-1] >= 3 else patches[:PATCHES, ..., :1]
    low, high = np.percentile(shown, [1, 99])
    shown = np.clip((shown - low) / (high - low or 1.0), 0, 1)
    columns = int(np.ceil(np.sqrt(len(shown))))
    rows = -(-len(shown) // columns)
    cells = np.full(
        (rows * columns, patches.shape[1] + 1, patches.shape[2] + 1, shown.shape[-1]), 0.5
    )
    cells[: len(shown), 1:, 1:] = shown
    height, width = cells.shape[1:3]
    mosaic = (
        cells.reshape(rows, columns, height, width, -1)
        .swapaxes(1, 2)
        .reshape(rows * height, columns * width, -1)
    )
    mosaic = np.pad(mosaic, ((0, 1), (0, 1), (0, 0)), constant_values=0.5)
    left.imshow(
        mosaic[..., 0] if mosaic.shape[-1] == 1 else mosaic, cmap="gray", interpolation="nearest"
    )
    left.set_title(f"{len(shown)} of {len(patches)} inducing patches", fontsize="medium")
    size = float(np.abs(weights).max()) or 1.0
    drawn = right.imshow(weights, cmap="RdBu_r", vmin=-size, vmax=size, interpolation="nearest")
    right.set_title("weights of the windows", fontsize="medium")
    figure.colorbar(drawn, ax=right, shrink=0.8)
    for ax in (left, right):
        ax.grid(False)
        ax.set_axis_off()
    return figure


def classes_1d(train, test, grid, probabilities, classes, names, title):
    """Plot class probabilities over one input, with ticks for ``train`` and ``test``, (x, code)."""
    figure, (ax,) = _figure(1, title, width=7.6)
    colours = _colours(len(classes))
    for c, name in enumerate(classes):
        ax.plot(
            grid, probabilities[:, c], color=colours[c], linewidth=1.8, label=f"{names[1]} = {name}"
        )
        for (x, codes), level, alpha in ((train, -0.03, 0.35), (test, -0.07, 0.9)):
            ax.plot(
                x[codes == c],
                np.full(np.sum(codes == c), level),
                "|",
                color=colours[c],
                alpha=alpha,
                markersize=7,
            )
    ax.set_xlabel(names[0])
    ax.set_ylabel("probability")
    ax.set_ylim(-0.1, 1.05)
    ax.set_title(
        "Class probabilities (ticks: training rows, below them held-out rows)", fontsize="small"
    )
    columns = -(-len(classes) // 16)
    if columns <= 3:  # a larger legend would leave no room for the curves
        ax.legend(
            frameon=False,
            fontsize="small",
            ncols=columns,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
        )
    return figure


def classification(codes, probabilities, classes, title, surface=None):
    """Plot reliability, the confusion matrix, and for two inputs a map.

    ``surface`` is None or
    ``(gx, gy, grid_probabilities (len(gy), len(gx), C), X (N, 2), X_codes, names)`` in original
    units.
    """
    figure, axes = _figure(3 if surface is not None else 2, title, width=4.9, height=4.6)
    _reliability(axes[0], codes, probabilities, classes)
    _confusion(axes[1], codes, probabilities, classes)
    if surface is not None:
        _map(axes[2], classes, *surface)
    return figure


def _reliability(ax, codes, probabilities, classes):
    if len(classes) == 2:
        confidence, right, what = probabilities[:, 1], codes == 1, f"probability of {classes[1]!r}"
    else:
        confidence, right, what = (
            probabilities.max(axis=1),
            codes == probabilities.argmax(axis=1),
            "probability of the predicted class",
        )
    edges = np.linspace(0, 1, 11)
    count, _ = np.histogram(confidence, edges)
    bins = merge_bins(count)[np.clip(np.digitize(confidence, edges) - 1, 0, 9)]
    rows = np.bincount(bins)
    x, share = np.bincount(bins, confidence) / rows, np.bincount(bins, right) / rows
    spread = np.sqrt(np.maximum(share * (1 - share), 0.25 / (rows + 1)) / rows)
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.9, linestyle="--")
    ax.errorbar(
        x, share, yerr=spread, color=BLUE, fmt="o-", markersize=4, linewidth=1.5, elinewidth=0.8
    )
    ax.set(
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        xlabel=what,
        ylabel="share observed (± standard error)",
        title="Reliability",
    )
    low = ax.inset_axes([0.6, 0.08, 0.37, 0.2])
    low.bar(edges[:-1] + 0.05, count, width=0.09, color=GREY)
    low.set(xticks=[], yticks=[], title="held-out rows")
    low.title.set_fontsize("x-small")


def merge_bins(count, least=LEAST):
    """Merge neighbouring bins with ``count`` rows to bins of at least ``least`` rows.

    Returns the number of the merged bin for each bin. Bins merge from the left; a rest at the right
    end joins the last merged bin. Fewer rows than ``least`` in total make one bin.
    """
    total = np.cumsum(count)
    number, start, at = np.zeros(len(count), int), 0, 0
    for k in range(len(count)):
        number[k] = at
        if total[k] - start >= least and total[-1] - total[k] >= least:
            start, at = total[k], at + 1
    return number


def _confusion(ax, codes, probabilities, classes):
    size = len(classes)
    matrix = np.zeros((size, size), int)
    np.add.at(matrix, (codes, probabilities.argmax(axis=1)), 1)
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    ax.grid(False)
    ax.imshow(share, cmap="Blues", vmin=0, vmax=1)
    if size <= 12:
        for i, j in np.ndindex(size, size):
            if matrix[i, j]:
                ax.text(
                    j,
                    i,
                    matrix[i, j],
                    ha="center",
                    va="center",
                    fontsize=9 if size <= 6 else 7,
                    color="white" if share[i, j] > 0.5 else "black",
                )
        labels = [name if len(name) <= 12 else name[:11] + "…" for name in classes]
        ax.set_xticks(
            range(size),
            labels,
            rotation=45 if max(map(len, labels)) > 3 else 0,
            ha="right" if max(map(len, labels)) > 3 else "center",
        )
        ax.set_yticks(range(size), labels)
    ax.set(xlabel="predicted class", ylabel="true class", title="Held-out rows by class")


def _map(ax, classes, gx, gy, probabilities, X, codes, names):
    ax.grid(False)
    colours = _colours(len(classes))
    if len(classes) == 2:
        levels = np.linspace(0, 1, 11)
        ax.contourf(gx, gy, probabilities[..., 1], levels=levels, cmap="RdBu_r", alpha=0.55)
        ax.contour(gx, gy, probabilities[..., 1], levels=[0.5], colors="black", linewidths=1.2)
        colours = ["#2166ac", "#b2182b"]
    else:
        rgb = np.array(colours)[:, :3]  # without alpha
        ax.imshow(
            1 - (1 - probabilities @ rgb) * 0.6,
            origin="lower",
            extent=(gx[0], gx[-1], gy[0], gy[-1]),
            aspect="auto",
        )
    for c, name in enumerate(classes):
        ax.scatter(
            *X[codes == c].T, s=16, color=colours[c], edgecolors="white", linewidths=0.4, label=name
        )
    ax.legend(fontsize="x-small", framealpha=0.8)
    ax.set(
        xlabel=names[0],
        ylabel=names[1],
        title=(
            f"Probability of {classes[1]!r} and the data"
            if len(classes) == 2
            else "Classes and the data"
        ),
    )


def _colours(count):
    import matplotlib

    palette = matplotlib.colormaps["tab10" if count <= 10 else "turbo"]
    return [palette(i if count <= 10 else i / (count - 1)) for i in range(count)]
