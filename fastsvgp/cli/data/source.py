"""The source of the bytes of a table: a file, standard input, or a pipe."""

import codecs
import gzip
import io
import os
import sys

from ... import DataFileError

STANDARD_INPUT = "-"
MARKED = {  # encodings by the marks at the beginning of a text; the longest mark comes first
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
CONTROL = bytes({*range(32)} - set(b"\t\n\r\f")) + b"\x7f"  # bytes that no text has


class Source:
    """The bytes of a table.

    A pipe or standard input can be read only once: its content is read here and kept in memory.

    ``name`` is the name for messages. ``encoding``: that of a text; None if its mark shows it.
    """

    def __init__(self, path, encoding=None):
        self.name, self._path, self._content = os.fspath(path), path, None
        of_marks = encoding is not None and codecs.lookup(encoding).name == "utf-8"
        self._encoding, self._given = "utf-8-sig" if of_marks else encoding, encoding is not None
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
        file = self._unzip()
        if self._encoding is None:
            marks, start = file.read(4), "utf-8-sig"
            file.seek(0)
            self._encoding = next(
                (name for mark, name in MARKED.items() if marks.startswith(mark)), start
            )
        return io.TextIOWrapper(file, encoding=self._encoding, newline="")

    def fall_back(self):
        """Read the text as Windows-1252 from now on; return whether it can be that."""
        with self._unzip() as file:
            plain = self._encoding == "utf-8-sig" and not self._given
            text = plain and not set(file.read()) & set(CONTROL)
        self._encoding = "cp1252" if text else self._encoding
        return text

    def _unzip(self):
        file = self.open()
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        return _Unzipped(file) if zipped else file


class _Unzipped(gzip.GzipFile):
    """``GzipFile`` that also closes the underlying file."""

    def __init__(self, file):
        super().__init__(fileobj=file)
        self._below = file

    def close(self):
        super().close()
        self._below.close()
