"""Render results: docs/papers.md, and tables in other pages."""

import json
import math
import re

from . import results

HEAD = """# The papers' tables, reproduced

<!-- written by: python bench/reproduce.py render -->
"""
LEGEND = """Each row is a cell that `python bench/reproduce.py` trains from fixed seeds. Its
results are files in `bench/results/papers`, with scores, hyperparameters, commit and versions,
and this page is rendered from them (`python bench/reproduce.py render`). Ours: the mean over
splits or seeds, with its standard error in brackets if there are several. Paper: its mean, with
its error in brackets. Δ: ours minus the paper's, in units of the joint standard error of the two
means. Steps in brackets are the paper's. Minutes are CPU minutes of a split on one thread; with
"about" they are estimated from a few steps. The command of a row is `python bench/reproduce.py
TABLE --rows ROW`, with both from the last column. `list` instead of a table prints what is
missing, and `all --hours 8` runs it."""
MINUS = "−"


def number(value, digits):
    """Return a number as text; None and NaN are nothing."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:.{digits}f}".replace("-", MINUS)


def with_error(value, error, digits):
    """Return a mean and its error, which has a digit more than the mean if it would show as 0."""
    text = number(value, digits)
    if error is None or math.isnan(error):
        return text
    more = digits + (error > 0 and float(f"{error:.{digits}f}") == 0)
    return f"{text} ({number(error, more)})"


def joint(*errors):
    """Return the joint standard error of some means; NaN if one is not known."""
    if any(error is None for error in errors):
        return math.nan
    return math.hypot(*errors)


def minutes(cell, found):
    if found:
        seconds = [result["CPU seconds"] for result in found.values()]
        return f"{sum(seconds) / len(seconds) / 60:.1f}"
    return f"about {cell.minutes:g}" if cell.runs else ""


def status(cell, found):
    """Return the number of splits, or why there is none."""
    if found:
        return str(len(found))
    return f"no data: {cell.missing}" if cell.missing else "not run"


def arguments(table, cell):
    row = cell.read_from[0] if cell.read_from else cell.row
    return f"`{table.name} --rows {json.dumps(row, ensure_ascii=False)}`"


def steps(cell):
    if cell.program is None and cell.read_from is None:
        return ""
    text = f"{cell.steps:,}" if cell.steps else ""
    return f"{text} ({cell.paper_steps:,})" if cell.paper_steps else text


def scores(table, cell, means):
    """Yield ours, the paper's and Δ for each metric; without the paper's if no row has one."""
    for metric in table.metrics:
        ours, published = means.get(metric.name), cell.paper.get(metric.name)
        yield "" if ours is None else with_error(ours.value, ours.error, metric.digits)
        if not in_paper(table, metric):
            continue
        yield "" if published is None else with_error(*published, metric.digits)
        yield "" if None in (ours, published) else difference(ours, published, table)


def difference(ours, published, table):
    """Return our mean minus the paper's in joint standard errors, if both errors are known."""
    error = joint(ours.error, table.error(published))
    if not error > 0:
        return ""
    return f"{(ours.value - published[0]) / error:+.1f}".replace("-", MINUS)


def in_paper(table, metric):
    """Return whether the paper has the metric for some row."""
    return any(metric.name in cell.paper for cell in table.cells)


def header(table):
    """Return the columns of a table."""
    columns = ["row", "splits", "steps"]
    for metric in table.metrics:
        columns.append(metric.name)
        if in_paper(table, metric):
            columns += ["paper", "Δ"]
    return [*columns, "minutes", "differs from the paper", "arguments"]


def markdown(rows):
    """Return a table; the first row is the header."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def section(folder, table):
    """Return the section of a table."""
    means, rows = results.means(folder, table), [header(table)]
    origins = set()
    for cell in table.cells:
        found = results.of_cell(folder, table, cell)
        origins |= {(r["commit"], r["versions"], r["machine"]) for r in found.values()}
        rows.append(
            [
                cell.row,
                status(cell, found),
                steps(cell),
                *scores(table, cell, means.get(cell.row, {})),
                minutes(cell, found),
                cell.differs,
                arguments(table, cell) if cell.runs or cell.read_from else "",
            ]
        )
    made = "".join(f"\nCommit {c}; {v}; {m}.\n" for c, v, m in sorted(origins))
    return f"### {table.name}: {table.title}\n\n{table.setting}\n\n{markdown(rows)}\n{made}"


# --- orders ---------------------------------------------------------------------------------------


def claims(table):
    """Yield ``(metric, better cell, worse cell)``: pairs that the paper tells apart.

    These are pairs of a group whose means differ by more than their joint standard error, and
    those that it tells apart in words.
    """
    seen = set()
    for metric, better, worse in by_numbers(table):
        seen.add((metric.name, better.row, worse.row))
        yield metric, better, worse
    metrics = {metric.name: metric for metric in table.metrics}
    cells = {cell.row: cell for cell in table.cells}
    for name, better, worse in table.orders:
        if (name, better, worse) not in seen:
            yield metrics[name], cells[better], cells[worse]


def by_numbers(table):
    """Yield the pairs that the paper's numbers tell apart."""
    for metric in table.metrics:
        for better in table.cells:
            for worse in table.cells:
                published = [cell.paper.get(metric.name) for cell in (better, worse)]
                if (
                    metric.sign == 0
                    or None in published
                    or not set(better.groups) & set(worse.groups)
                ):
                    continue
                gain = metric.sign * (published[0][0] - published[1][0])
                if gain > 0 and gain > joint(*map(table.error, published)):
                    yield metric, better, worse


def orders(folder, tables):
    """Return sentences on the claims that are not found here, and the number of all and of checked.

    An order is not found if ours is the opposite one.
    """
    said, checked, known = [], 0, 0
    for table in tables:
        means = results.means(folder, table)
        for metric, better, worse in claims(table):
            known += 1
            ours = [means.get(cell.row, {}).get(metric.name) for cell in (better, worse)]
            if None in ours:
                continue
            checked += 1
            if metric.sign * (ours[0].value - ours[1].value) <= 0:
                said.append(not_found(table, metric, better, worse, ours))
    return said, checked, known


def not_found(table, metric, better, worse, ours):
    """Return the sentence on an order that is not found."""
    clear = abs(ours[0].value - ours[1].value) > 2 * joint(*(mean.error for mean in ours))
    published = [
        with_error(*cell.paper.get(metric.name, (math.nan, None)), metric.digits)
        for cell in (better, worse)
    ]
    said = (
        f"{published[0]} and {published[1]} in the paper"
        if all(published)
        else "without numbers in the paper"
    )
    here = [with_error(mean.value, mean.error, metric.digits) for mean in ours]
    return (
        f"- {table.name}, {metric.name}: {better.row} before {worse.row}, {said},"
        f" {here[0]} and {here[1]} here"
        f"{'' if clear else ' (within two joint errors of ours, or one split)'}."
    )


def page(folder, tables):
    """Return the text of docs/papers.md."""
    said, checked, known = orders(folder, tables)
    summary = (
        f"Of {known} orders of two rows that the papers state, {checked} have results here, and"
        f" {len(said)} of these are not found"
    )
    top = "\n".join([summary + (":" if said else "."), "", *said]).rstrip()
    cells = [(table, cell) for table in tables for cell in table.cells if cell.runs]
    count = sum(bool(results.of_cell(folder, table, cell)) for table, cell in cells)
    there = (
        f"Of {len(cells)} rows that the data at hand allow, {count} have results. Rows from another"
        " start, or with falling steps, repeat orders of a paper."
    )
    parts, paper = [HEAD, top, "", there, "", LEGEND, ""], None
    for table in tables:
        if table.paper != paper:
            paper = table.paper
            parts += [f"## {paper}", ""]
        parts.append(section(folder, table))
    return "\n".join(parts)


# --- other pages ----------------------------------------------------------------------------------

REGION = re.compile(
    r"(<!-- begin: rows of (?P<table>\w+)(?P<rows>(?:; [^;]+?)*) -->\n).*?(<!-- end: rows -->)",
    re.S,
)


def short(folder, table, rows):
    """Return a table of some rows for another page: ours, and the paper's in brackets."""
    means = results.means(folder, table)
    lines = [["row", "splits", *(metric.name for metric in table.metrics)]]
    for cell in table.cells:
        if cell.row not in means or (rows and cell.row not in rows):
            continue
        line = [cell.row, status(cell, results.of_cell(folder, table, cell))]
        for metric in table.metrics:
            ours, published = means[cell.row].get(metric.name), cell.paper.get(metric.name)
            text = "" if ours is None else with_error(ours.value, ours.error, metric.digits)
            line.append(text + (f" [{number(published[0], metric.digits)}]" if published else ""))
        lines.append(line)
    return markdown(lines)


def filled(text, folder, tables):
    """Return a page with its regions filled.

    A region begins with ``<!-- begin: rows of TABLE; ROW; ROW -->`` (all rows if none is named) and
    ends with ``<!-- end: rows -->``.
    """
    named = {table.name: table for table in tables}

    def fill(match):
        table = named[match["table"]]
        rows = [row.strip() for row in match["rows"].split(";") if row.strip()]
        unknown = set(rows) - {cell.row for cell in table.cells}
        if unknown:
            raise ValueError(f"no row {min(unknown)!r} in {table.name}")
        return f"{match[1]}{short(folder, table, rows)}\n{match[4]}"

    return REGION.sub(fill, text)
