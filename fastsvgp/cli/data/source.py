"""The source of the bytes of a table: a file, standard input, or a pipe."""

import gzip
import io
import os
import sys

from ... import DataFileError

STANDARD_INPUT = "-"


class Source:
    """The bytes of a table.

    A pipe or standard input can be read only once: its content is read here and kept in memory.

    ``name`` is the name for messages.
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
        """Return a binary file at its first byte."""
        return open(self._path, "rb") if self._content is None else io.BytesIO(self._content)

    def open_text(self):
        """Return a text file at its first character, decompressed if it is gzipped."""
        file = self.open()
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        return io.TextIOWrapper(
            _Unzipped(file) if zipped else file, encoding="utf-8-sig", newline=""
        )


class _Unzipped(gzip.GzipFile):
    """``GzipFile`` that also closes the underlying file."""

    def __init__(self, file):
        super().__init__(fileobj=file)
        self._below = file

    def close(self):
        super().close()
        self._below.close()
