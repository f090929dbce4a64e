"""``python -m fastsvgp`` is the ``fastsvgp`` command."""

import sys

from .cli import main

sys.exit(main())
