"""Bytes into lines and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tailrace.graph.model import Record
from tailrace.runtime.names import names_of

MOST_LINE_BYTES = 1 << 20
"""The longest line that sources take, unless they are told otherwise: 1 MiB."""


class LineError(ValueError):
    """A line that cannot be read: too long, or not what was expected."""


class LineBuffer:
    """Cuts blocks of bytes into lines; holds the one that has no end yet."""

    def __init__(self, most_bytes: int = MOST_LINE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._partial = b""

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in this block, without their newlines."""
        *lines, self._partial = (self._partial + block).split(b"\n")
        longest = max(map(len, lines), default=0)
        if max(longest, len(self._partial)) > self._most_bytes:
            line = self._partial if longest <= self._most_bytes else max(lines, key=len)
            raise LineError(
                f"a line is longer than {self._most_bytes} bytes; it begins with {line[:60]!r}"
            )
        return lines

    def rest(self) -> list[bytes]:
        """The last line if it has no newline; then the buffer is empty."""
        partial, self._partial = self._partial, b""
        return [partial] if partial else []


def _decode(line: bytes) -> str:
    return (line[:-1] if line.endswith(b"\r") else line).decode()


def _encode(record: Record) -> bytes:
    text = str(record)
    if "\n" in text:
        raise ValueError(f"a line of text cannot hold a newline: {text[:60]!r}")
    return text.encode()


@dataclass(frozen=True)
class Text:
    """UTF-8 lines, ended by newline or carriage return and newline. Any record, by its `str`."""

    extension = "txt"

    def parser(self) -> Callable[[bytes], Record]:
        """What makes a record of a line."""
        return _decode

    def encoder(self) -> Callable[[Record], bytes]:
        """What makes a line of a record."""
        return _encode


@dataclass(frozen=True)
class Json:
    """One JSON value per line, as plain values or as `type`: whatever msgspec can decode to.

    Encodes everything msgspec does: dicts, lists, dataclasses, structs, dates and so on. A record
    whose values have names is an object, so NamedTuples and Spark's Rows, too; a plain tuple, and
    one inside of a record, is an array.
    """

    type: Any = Any
    extension = "ndjson"

    def parser(self) -> Callable[[bytes], Record]:
        """What makes a record of a line."""
        return msgspec.json.Decoder(self.type).decode

    def encoder(self) -> Callable[[Record], bytes]:
        """What makes a line of a record."""
        encode = msgspec.json.Encoder().encode

        def encoded(record: Record) -> bytes:
            if isinstance(record, tuple) and (names := names_of(record)) is not None:
                record = dict(zip(names, record, strict=True))
            return encode(record)

        return encoded


Format = Text | Json
TEXT = Text()
