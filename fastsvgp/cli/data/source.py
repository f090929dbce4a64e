"""Where the bytes of a table come from: a file, standard input, or a pipe, which gives them once."""

import gzip
import io
import os
import sys

from ... import DataFileError

STANDARD_INPUT = "-"


class Source:
    """The bytes of a table.

    What is no file on a disk, such as a pipe, gives them once: they are read here and kept.

    ``name`` is what messages call it.
    """

    def __init__(self, path):
        self.name, self._path, self._content = os.fspath(path), path, None
        if self.name == STANDARD_INPUT:
            self.name = "standard input"
            if sys.stdin is None:
                raise DataFileError("standard input is closed; give a file")
            self._content = sys.stdin.buffer.read()
        elif not os.path.isfile(path):
            with open(path, "rb") as file:
                self._content = file.read()

    def open(self):
        """All bytes, from the first, as a file to read."""
        return open(self._path, "rb") if self._content is None else io.BytesIO(self._content)

    def open_text(self):
        """The text from its first character, unzipped where it is gzipped."""
        file = self.open()
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        return io.TextIOWrapper(
            _Unzipped(file) if zipped else file, encoding="utf-8-sig", newline=""
        )


class _Unzipped(gzip.GzipFile):
    """Closes the file below as well."""

    def __init__(self, file):
        super().__init__(fileobj=file)
        self._below = file

    def close(self):
        super().close()
        self._below.close()
