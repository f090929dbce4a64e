"""Draw the curves of figures from their results. Needs Matplotlib."""

from . import results

PICTURES = {  # table: file in docs/, panels by the first word of a row, axes
    "inverse_free_fig_1": ("inverse_free.png", ("steps", "negative bound")),
    "dual_fig_2": ("dual_maps.png", ("lengthscale before", "after a round of EM")),
    "dual_fig_3": ("dual_rounds.png", ("round", "NLPD of held-out rows")),
}


def curves_of_traces(table, cell, found):
    """Return panel, label, and x and y of a row of figure 1 of R-SVGP."""
    steps, bounds = found[0]["curve"]
    panel, _, label = cell.row.partition(" ")
    return panel, label, steps, [-bound for bound in bounds]


def curves_of_maps(table, cell, found):
    return "", cell.row, found[0]["before"], found[0]["after"]


def curves_of_rounds(table, cell, found):
    """Return the mean over folds."""
    traces = [[look["NLPD"] for look in result["trace"]] for result in found.values()]
    panel, _, label = cell.row.partition(" ")
    mean = [sum(values) / len(values) for values in zip(*traces, strict=False)]
    return panel, label, range(1, len(mean) + 1), mean


CURVES = {
    "inverse_free_fig_1": curves_of_traces,
    "dual_fig_2": curves_of_maps,
    "dual_fig_3": curves_of_rounds,
}


def draw(folder, table, out):
    """Write the picture of a table to a folder; return its path, or None without results."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {}
    for cell in table.cells:
        found = results.of_cell(folder, table, cell)
        if found:
            panel, *curve = CURVES[table.name](table, cell, found)
            panels.setdefault(panel, []).append(curve)
    if not panels:
        return None
    name, (x_label, y_label) = PICTURES[table.name]
    figure = Figure(figsize=(5.2 * len(panels), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (panel, curves) in zip(axes, panels.items(), strict=True):
        for label, x, y in curves:
            ax.plot(x, y, label=label)
        ax.set(title=panel, xlabel=x_label, ylabel=y_label)
        if table.name == "inverse_free_fig_1":
            ax.set_xscale("log")
        if table.name == "dual_fig_2":
            ax.plot(ax.get_xlim(), ax.get_xlim(), color="#8a8a8a", linewidth=1)
        ax.legend(fontsize="small")
    figure.savefig(out / name, dpi=110)
    return out / name
