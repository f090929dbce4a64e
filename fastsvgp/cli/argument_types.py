"""Argument types with their error messages, shared arguments, and those of results."""

import argparse
import math

SHORT = {
    *("file", "--target", "--ignore", "--missing", "--test-fraction", "--seconds", "--out"),
    "--help",
}
EXAMPLES = """examples:
  fastsvgp fit DATA.csv                      the last column is the target; 60 s of search
  fastsvgp fit DATA.csv --target price --ignore id --seconds 10
  fastsvgp predict DATA-fit NEW.csv          predictions of that model

The results are in DATA-fit: open report.html there."""
MOST = 10**15  # steps or points: unlimited in practice, and still fits a C integer


class LineBreaks(argparse.HelpFormatter):
    """Help formatter that keeps the line breaks of help texts, because they separate list items."""

    def _split_lines(self, text, width):
        return [
            line
            for part in text.splitlines()
            for line in super(LineBreaks, self)._split_lines(part, width)
        ]


class ShortHelp(argparse.Action):
    """Print the help of the options in ``SHORT``, and the examples."""

    def __call__(self, parser, *_):
        page = parser._get_formatter()
        page.add_usage(f"{parser.prog} FILE [options]", (), ())
        page.start_section("some options")
        shown = [one for one in parser._actions if {one.dest, *one.option_strings} & SHORT]
        page.add_arguments(shown)
        page.end_section()
        print(f"{page.format_help()}\n{EXAMPLES}")
        parser.exit()


def number(kind, low, high=math.inf, *, open_low=False, closed_high=False):
    """Return an argparse type for numbers in [low, high).

    ``open_low`` excludes ``low``; ``closed_high`` includes ``high``.
    """
    name = {int: "a whole number", float: "a number"}[kind]
    bounds = f"{name} {'above' if open_low else 'from'} {low}"
    if high < math.inf:
        bounds += f" to {high}" if closed_high else f" and below {high}"

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        above = value is not None and (value > low if open_low else value >= low)
        if not above or not (value <= high if closed_high else value < high):
            raise argparse.ArgumentTypeError(f"expected {bounds}, got {text!r}")
        return value

    return parse


count = number(int, 1, MOST, closed_high=True)
positive = number(float, 0, open_low=True)


def count_or(word, most=MOST):
    """Return an argparse type for a whole number above 0, or a word."""
    count = number(int, 1, most, closed_high=True)

    def parse(text):
        if text == word:
            return word
        try:
            return count(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}; or give {word}") from None

    return parse


def shape(least, most):
    """Return an argparse type for ``least`` to ``most`` whole numbers separated by x."""

    def parse(text):
        sizes = text.lower().split("x")
        if not least <= len(sizes) <= most or not all(
            size.isdecimal() and 0 < int(size) <= MOST for size in sizes
        ):
            example = "5x5" if most == 2 else "28x28 or 32x32x3"
            raise argparse.ArgumentTypeError(
                f"expected whole numbers above 0 separated by x, as in {example}, got {text!r}"
            )
        return tuple(map(int, sizes))

    return parse


def columns(text):
    return [part.strip() for part in text.split(",") if part.strip()]


def periods(text):
    """Parse COLUMN=PERIOD,...: pairs of a column and a number above 0."""
    found = []
    for part in columns(text):
        column, equals, period = part.rpartition("=")
        if not (column.strip() and equals):
            raise argparse.ArgumentTypeError(f"expected COLUMN=PERIOD, as in hour=24, got {part!r}")
        found.append((column.strip(), positive(period)))
    if not found:
        raise argparse.ArgumentTypeError(f"expected COLUMN=PERIOD, as in hour=24, got {text!r}")
    return found


def levels(text):
    level = number(float, 0, 1, open_low=True)
    return [level(part) for part in columns(text)]


def add_fit_help(fit):
    """Add -h, which is short, and --help to a parser that has neither."""
    short = "show what most fits need, with examples"
    fit.add_argument("-h", action=ShortHelp, nargs=0, default=argparse.SUPPRESS, help=short)
    fit.add_argument("--help", action="help", help="show all options")


def add_traceback(group):
    group.add_argument(
        "--traceback",
        action="store_true",
        help="print the Python traceback above an error message",
    )


def encoding(text):
    """Return the name of an encoding that Python knows."""
    try:
        "".encode(text)
    except (LookupError, ValueError):
        raise argparse.ArgumentTypeError(
            f"expected an encoding, such as utf-8, utf-16, iso-8859-1 or cp1252, got {text!r:.40}"
        ) from None
    return text


def add_text_layout(group):
    group.add_argument(
        "--delimiter",
        metavar="C",
        default="auto",
        help="auto (default), comma, semicolon, tab, space, or one character",
    )
    group.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the first line holds column names (default auto)",
    )
    group.add_argument(
        "--decimal",
        metavar="MARK",
        choices=("auto", ",", "."),
        default="auto",
        help="decimal mark of all numbers: , or . (default auto: the one that a column shows)",
    )
    group.add_argument(
        "--encoding",
        metavar="NAME",
        type=encoding,
        help=("of a text, such as iso-8859-1 (default: that of its mark, else utf-8, else cp1252)"),
    )
    group.add_argument(
        "--skip",
        metavar="N",
        type=number(int, 0, MOST),
        default=0,
        help="lines of text to leave out above the table (default: those that do not look like it)",
    )


def add_output(output):
    """Add the arguments of ``fit`` about its results."""
    output.add_argument(
        "--out", metavar="DIR", help="folder for the results (default: name of FILE plus -fit)"
    )
    output.add_argument(
        "--resume",
        action="store_true",
        help="continue from the checkpoint that an interrupted run left in --out",
    )
    output.add_argument("--quiet", action="store_true", help="print errors only, no report")
    add_traceback(output)


def add_held_out(data):
    """Add the arguments that say which rows judge the model."""
    held_out = data.add_mutually_exclusive_group()
    held_out.add_argument(
        "--test-mask",
        metavar="FILE:COLUMN",
        help="hold out the rows where this column is 1; all other rows must have 0",
    )
    held_out.add_argument(
        "--test-fraction",
        metavar="F",
        type=number(float, 0, 1),
        help=(
            "fraction of rows to hold out: random ones, or as --group and --time say (default 0.1;"
            " 0.2 of groups; 0 holds out nothing)"
        ),
    )
    new = data.add_mutually_exclusive_group()
    new.add_argument(
        "--group",
        metavar="COLUMN",
        help=(
            "the model is for new values of this column, such as patients, which is then no input:"
            " whole groups are held out"
        ),
    )
    new.add_argument(
        "--time",
        metavar="COLUMN",
        help="the model is for later values of this column: the latest rows are held out",
    )
