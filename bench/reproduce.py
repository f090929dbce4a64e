"""Run, list and render the tables of the papers; a finished cell is one file of results.

    python bench/reproduce.py list                     # all tables, their cost, and what is missing
    python bench/reproduce.py solve_gp_7 --rows "bike SVGP 1024" --splits 0-4
    python bench/reproduce.py all --hours 8            # everything, the rows that decide first
    python bench/reproduce.py all --steps 3            # a quick check of every cell at tiny sizes
    python bench/reproduce.py render                   # write docs/papers.md
    python bench/reproduce.py pictures                 # write the pictures of figures to docs/

A finished cell is not run again. An unfinished one goes on from its checkpoint: Ctrl-C, and the end
of --hours, write it. Several processes share the cells of a folder: start the command again to use
another core. Results of other --steps, or of --validation, are written to another folder; below 10
steps the data and the models shrink too. Reads ../shared/data or the folder that FASTSVGP_DATA
names.
"""

import argparse
import math
import pathlib
import shlex
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples")]

import report  # noqa: E402
from papers import (  # noqa: E402
    dual,
    inverse_free,
    page,
    pictures,
    qsgp,
    real_data,
    results,
    running,
    solve_gp,
)
from papers.cells import QUICK  # noqa: E402

import fastsvgp as fs  # noqa: E402

MODULES = solve_gp, inverse_free, dual, qsgp, real_data
TABLES = {table.name: table for module in MODULES for table in module.TABLES}
OUT, DOCS = ROOT / "bench" / "results" / "papers", ROOT / "docs"
PAGES = ROOT / "README.md", *sorted(DOCS.glob("*.md"))
FIRST = (  # they decide what the pages say, so `all` runs them before the others
    ("solve_gp_2_6", ("ODVGP 1024+8096", "SVGP 1024")),
    ("solve_gp_7", ("bike SVGP 1024", "bike SOLVE 1024+1024", "bike ODVGP 1024+8096")),
    ("qsgp_3", ("QSGP-0, blocks", "SVGP 512")),
    ("inverse_free_1", ("L = 1, L-SVGP", "L = 2, L-SVGP", "L = 3, L-SVGP")),
)
THEN = (
    "solve_gp_2_6",
    "solve_gp_7",
    "qsgp_2",
    "qsgp_3",
    "dual_1",
    "dual_fig_2",
    "dual_fig_1",
    "dual_fig_3",
    "dual_fig_4",
    "inverse_free_1",
    "inverse_free_fig_1",
    "inverse_free_fig_2",
    "inverse_free_fig_s1",
    "inverse_free_2",
    "qsgp_digits",
)
COMMANDS = "list", "render", "pictures", "all"


def in_order():
    """Yield ``(table, cell, split)`` of `all`, each once.

    All splits of the rows that decide, then the first split of all rows, then the second.
    """
    seen = set()
    rest = [name for name in TABLES if name not in THEN]
    groups = [
        [(name, cell) for cell in TABLES[name].cells if cell.row in rows] for name, rows in FIRST
    ]
    groups.append([(name, cell) for name in (*THEN, *rest) for cell in TABLES[name].cells])
    for group in groups:
        for split in range(max(cell.splits for _, cell in group)):
            for name, cell in group:
                if cell.runs and split < cell.splits and (name, cell.row, split) not in seen:
                    seen.add((name, cell.row, split))
                    yield TABLES[name], cell, split


# --- running --------------------------------------------------------------------------------------


class Run:
    """The settings of a run, and what went wrong so far."""

    def __init__(self, args):
        self.args, self.wrong = args, 0
        self.quick = args.steps is not None and args.steps < QUICK
        self.part = "validation" if args.validation else "test"
        self.until = math.inf if args.hours is None else 3600 * args.hours
        self.commit, self.machine = report.commit(), report.machine()
        self.versions = report.versions(report.PACKAGES)

    def command(self, table, cell, split):
        """Return the command that repeats a cell."""
        words = ["python", "bench/reproduce.py", table.name, "--rows", cell.row]
        words += ["--splits", str(split)]
        words += [] if self.args.steps is None else ["--steps", str(self.args.steps)]
        return shlex.join(words + ["--validation"] * self.args.validation)

    def say(self, table, cell, split, what, wrong=False):
        self.wrong += wrong
        print(f"{table.name}, {cell.row}, split {split}: {what}", flush=True)

    def cell(self, table, cell, split):
        """Run a cell unless it is finished; return whether to go on with others."""
        steps = cell.steps if self.args.steps is None else self.args.steps
        setting = cell.setting(steps, self.quick, self.part)
        file = results.path(self.args.out, table, cell, split)
        state = self.args.out / ".unfinished" / f"{table.name}-{file.stem}.npz"
        state.parent.mkdir(parents=True, exist_ok=True)
        with running.claimed(state) as ours:
            if not ours:
                return True
            if file.is_file():
                if results.read(file)["setting"] != setting:
                    said = f"{file} has another setting and is kept; move it, or give --out"
                    self.say(table, cell, split, said, wrong=True)
                return True
            checkpoint = running.Checkpoint(state, self.until)
            try:
                found = running.run(cell, split, steps, checkpoint, self.quick, self.part)
            except running.Unfinished as stopped:
                self.say(table, cell, split, f"unfinished, goes on from {state}")
                return not (stopped.interrupted or checkpoint.over)
            except KeyboardInterrupt:
                return False
            except running.Skipped as reason:
                self.say(table, cell, split, f"skipped: {reason}")
                return True
            except FileNotFoundError as error:
                name = error.filename or str(error).removesuffix(" not found.")
                said = f"no such data: {name}; FASTSVGP_DATA names the folder of the data"
                self.say(table, cell, split, said, wrong=True)
                return True
            except Exception:
                self.say(table, cell, split, traceback.format_exc(), wrong=True)
                return True
            named = {"table": table.name, "row": cell.row, "split": split, "setting": setting}
            results.write(file, named | found | self.origin(table, cell, split))
            checkpoint.remove()
        scores = ", ".join(f"{name} {value:.4g}" for name, value in found["scores"].items())
        self.say(table, cell, split, f"{scores}; {found['CPU seconds']:.0f} CPU s")
        return not checkpoint.over

    def origin(self, table, cell, split):
        """Return how a result was made."""
        return {
            "command": self.command(table, cell, split),
            "commit": self.commit,
            "versions": self.versions,
            "machine": self.machine,
            "threads": self.args.threads,
        }


def chosen(args, parser):
    """Return ``(table, cell, split)`` of the arguments."""
    if args.names == ["all"]:
        every = (
            list(in_order())
            if args.steps is None
            else [
                (table, cell, 0) for table in TABLES.values() for cell in table.cells if cell.runs
            ]
        )
        return [each for each in every if args.splits is None or each[2] in args.splits]
    found, rows = [], set(args.rows or ())
    for name in args.names:
        cells = [cell for cell in TABLES[name].cells if not rows or cell.row in rows]
        rows_here = {cell.row for cell in cells}
        for cell in cells:
            if not cell.runs:
                if args.rows:
                    print(f"{name}, {cell.row}: {why_not(cell)}", flush=True)
                continue
            splits = range(max(1, cell.splits)) if args.splits is None else args.splits
            found += [(TABLES[name], cell, split) for split in splits]
        rows -= rows_here
    if rows:
        parser.error(
            f"no row {min(rows)!r} in {', '.join(args.names)}; `list {args.names[0]}` names them"
        )
    return sorted(found, key=lambda each: each[2])


def why_not(cell):
    """Return why a cell cannot be run."""
    if cell.read_from:
        return f"is read from the row {cell.read_from[0]!r}"
    return f"{'no data' if cell.program is None else 'no longer there'}: {cell.missing}"


# --- other commands -------------------------------------------------------------------------------


def listing(names):
    """Yield lines on tables, or on the rows of the named ones."""
    for name in names or TABLES:
        table, left, total, missing = TABLES[name], 0.0, 0.0, []
        for cell in table.cells:
            found = results.of_cell(OUT, table, cell)
            total += cell.splits * cell.minutes
            left += max(0, cell.splits - len(found)) * cell.minutes
            if names:
                what = f"{len(found)} of {cell.splits} splits, about {cell.minutes:g} min each"
                yield f"  {cell.row}: {what if cell.runs else why_not(cell)}"
            elif cell.missing and cell.program is None:
                missing.append(cell.missing)
        hours = f"{left / 60:.1f} of {total / 60:.1f} CPU hours left"
        lacks = f"; no data: {', '.join(dict.fromkeys(missing))}" if missing else ""
        yield f"{name}: {table.paper}, {table.title}: {hours}{lacks}"


def render(out=OUT):
    """Return ``{path: text}`` of the pages that show results."""
    found = {DOCS / "papers.md": page.page(out, TABLES.values())}
    for path in PAGES:
        if path != DOCS / "papers.md":
            text = path.read_text(encoding="utf-8")
            if page.REGION.search(text):
                found[path] = page.filled(text, out, TABLES.values())
    return found


def splits_of(text):
    """Read splits: 0-4, or 0,2."""
    found = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdigit() and (last.isdigit() if dash else True)):
            raise argparse.ArgumentTypeError(f"{part!r} is no split; give 0-4, or 0,2")
        found += range(int(first), int(last or first) + 1)
    if not found or max(found) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} are no splits; there are 0 to 9")
    return found


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="+", metavar="TABLE", help=f"tables, or one of {', '.join(COMMANDS)}"
    )
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="rows of the tables; default all")
    parser.add_argument("--splits", type=splits_of, help="0-4, or 0,2; default as listed")
    parser.add_argument("--steps", type=int, metavar="N", help="in place of those of each cell")
    parser.add_argument("--hours", type=float, metavar="H", help="CPU hours of this process")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--validation",
        action="store_true",
        help="score on rows that are kept from training, to choose a setting",
    )
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results")
    args = parser.parse_args(argv)
    first, *others = args.names
    wanted = others if first in ("list", "render", "pictures") else args.names
    for name in [] if args.names == ["all"] else wanted:
        if name not in TABLES:
            parser.error(f"no table {name!r}; `python bench/reproduce.py list` names all tables")
    if args.steps is not None and args.steps < 1:
        parser.error(f"--steps must be at least 1, got {args.steps}")
    if args.out is None:
        other = args.steps is not None or args.validation
        ending = "-validation" * args.validation
        ending += "" if args.steps is None else f"-{args.steps}"
        args.out = pathlib.Path(f"reproduce{ending}") if other else OUT
    return args, parser


def main(argv=None):
    """Run what the arguments ask for; return the exit status."""
    args, parser = arguments(argv)
    first, *others = args.names
    if first == "list":
        print("\n".join(listing(others)))
        return 0
    if first == "render":
        for path, text in render().items():
            path.write_text(text, encoding="utf-8")
        return 0
    if first == "pictures":
        for name in pictures.PICTURES:
            print(f"{name}: {pictures.draw(OUT, TABLES[name], DOCS) or 'no results'}")
        return 0
    run, cells = Run(args), chosen(args, parser)
    with fs.set_num_threads(args.threads):
        for table, cell, split in cells:
            if not run.cell(table, cell, split):
                print(f"stopped after {time.process_time() / 3600:.2f} CPU hours", flush=True)
                break
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
