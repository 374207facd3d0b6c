"""Codecs: a jumbo of records to buffers and back.

Encoding returns the buffers to write one after the other; nothing is
joined before the transport's own copy. Decoded records may be views on the payload: they keep it
alive, and it must not change while they live.

Pickle runs code: decode only what came from an authenticated worker of the same job.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

from tailrace.transport.frame import Buffer

ALIGNMENT_BYTES = 64
_LARGE_BYTES = 4096
"""What travels out of band keeps the whole message alive for as long as it lives."""


class CodecError(ValueError):
    """Records that cannot be encoded, or a payload that cannot be decoded."""


class UnreadableError(CodecError):
    """A record of a payload that could not be decoded, unlike others of the payload."""


class PickleCodec:
    """Any Python objects, by pickle protocol 5.

    Large buffers inside the records (NumPy arrays, Arrow columns) travel out of band: they are
    not copied by encoding, and come out as read-only views on the payload, each aligned to 64
    bytes from the payload's start. Without such buffers the payload is the plain pickle.

    Not re-entrant: a record's own pickling must not call the codec that pickles it.
    """

    # Payload with out-of-band buffers: tag, count, size of the pickle, size of each buffer; then
    # the pickle; then the buffers, each after padding. A plain pickle starts with another byte.
    _TAG = int.from_bytes(b"OOB5", "little")
    _PREFIX = struct.Struct("<II")
    _PICKLE_START = 0x80

    def __init__(self) -> None:
        # One list for all calls: a list and its bound append per call cost 80 ns.
        self._out_of_band: list[pickle.PickleBuffer] = []

    def _collect(self, buffer: pickle.PickleBuffer) -> bool:
        """Take large buffers out of band; True leaves a small one in the pickle."""
        if buffer.raw().nbytes < _LARGE_BYTES:
            return True
        self._out_of_band.append(buffer)
        return False

    def encode(self, records: list[Any]) -> list[Buffer]:
        """Return one bytes object, or several buffers when some travel out of band."""
        try:
            pickled = pickle.dumps(records, 5, buffer_callback=self._collect)
            if not self._out_of_band:
                return [pickled]
            return self._assemble(pickled, [buffer.raw() for buffer in self._out_of_band])
        except Exception as error:
            raise CodecError(f"cannot pickle {len(records)} records: {error!r}") from error
        finally:
            if self._out_of_band:
                self._out_of_band.clear()

    def makes_views(self, payload: bytes | memoryview) -> bool:
        """Whether records decoded from it would be views on it."""
        return len(payload) > 0 and payload[0] != self._PICKLE_START

    def decode(
        self, payload: bytes | memoryview, loads: Callable[..., Any] = pickle.loads
    ) -> list[Any]:
        """Return the records; views in them keep the payload alive."""
        try:
            if payload[0] == self._PICKLE_START:
                records = loads(payload)
            else:
                pickled, buffers = self._disassemble(memoryview(payload).toreadonly())
                records = loads(pickled, buffers=buffers)
        except Exception as error:
            raise CodecError(f"no pickle in {len(payload)} bytes: {error!r}") from error
        if type(records) is not list:
            raise CodecError(f"pickle holds a {type(records).__name__}; expected a list")
        return records

    def _assemble(self, pickled: bytes, views: list[memoryview]) -> list[Buffer]:
        sizes = [len(pickled), *(len(view) for view in views)]
        head = self._PREFIX.pack(self._TAG, len(views)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        parts: list[Buffer] = [head, pickled]
        end = len(head) + len(pickled)
        for view in views:
            padding_bytes = -end % ALIGNMENT_BYTES
            if padding_bytes:
                parts.append(bytes(padding_bytes))
            parts.append(view)
            end += padding_bytes + len(view)
        return parts

    def _disassemble(self, payload: memoryview) -> tuple[memoryview, list[memoryview]]:
        tag, count = self._PREFIX.unpack_from(payload)
        if tag != self._TAG:
            raise CodecError(f"starts with {bytes(payload[:4])!r}")
        end = self._PREFIX.size + 8 * (count + 1)
        if end > len(payload):
            raise CodecError(f"announces {count} buffers")
        pickled_bytes, *sizes = struct.unpack_from(f"<{count + 1}Q", payload, self._PREFIX.size)
        pickled = payload[end : end + pickled_bytes]
        end += pickled_bytes
        buffers = []
        for size in sizes:
            start = end + -end % ALIGNMENT_BYTES
            end = start + size
            buffers.append(payload[start:end])
        if end != len(payload):
            raise CodecError(f"announces {end} bytes")
        return pickled, buffers


class ArrowCodec:
    """Arrow record batches of one schema, as an Arrow IPC stream.

    Neither way copies a column: encoding returns the batches' own buffers, and decoded batches
    reference the payload. Columns are aligned to 8 bytes from the payload's start, as the stream
    format has it. An empty list is an empty payload.
    """

    def __init__(self) -> None:
        # Here and not above: it takes 0.2 s, which workers without columns need not pay.
        import pyarrow as pa

        self._arrow = pa

    def encode(self, records: list[Any]) -> list[Buffer]:
        """Return the stream's pieces; all batches must have the first one's schema."""
        if not records:
            return [b""]
        sink = _PieceSink()
        try:
            target = self._arrow.PythonFile(sink, "w")
            with self._arrow.ipc.new_stream(target, records[0].schema) as stream:
                for batch in records:
                    stream.write_batch(batch)
        except Exception as error:
            raise CodecError(f"cannot encode {len(records)} batches: {error!r}") from error
        return sink.pieces

    def decode(self, payload: bytes | memoryview) -> list[Any]:
        """Return the batches; their columns are views that keep the payload alive."""
        if not payload:
            return []
        try:
            batches = list(self._arrow.ipc.open_stream(self._arrow.py_buffer(payload)))
            for batch in batches:
                batch.validate()
        except Exception as error:
            raise CodecError(f"no Arrow stream in {len(payload)} bytes: {error!r}") from error
        return batches


class _PieceSink:
    """A file for Arrow to write to, that keeps what is written instead of copying it."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[Buffer] = []

    def write(self, piece: Any) -> None:
        self.pieces.append(piece if type(piece) is bytes else memoryview(piece).cast("B"))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
