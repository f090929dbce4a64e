"""A ratchet: lines of code of each room, without docstrings, comments and blank lines.

Rules about files and functions do not see that a package says one thing in many places. A number
here may go down at any time; it goes up only with a reason in the message of the commit.
"""

import ast
import io
import tokenize

from support.source import FILES, name_of

BUDGETS = {
    "bounds": 1760,
    "check": 850,
    "cli": 6165,
    "collapsed": 660,
    "covariances": 2150,
    "distributed": 1000,
