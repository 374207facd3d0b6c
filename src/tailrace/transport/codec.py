"""Codecs: a jumbo of records to buffers and back.

A codec is chosen by the sender and named in the message by its kind, so that a receiver picks the
decoder by the number. Encoding returns the buffers to write one after the other; nothing is
joined before the transport's own copy. Decoded records may be views on the payload: they keep it
alive, and it must not change while they live.

Pickle runs code: decode only what came from an authenticated worker of the same job.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from tailrace.transport.frame import Buffer

# Kinds 0 (raw bytes) and 1 (a batch of inner lengths) belong to the ring.
KIND_PICKLE = 2
KIND_MSGSPEC = 3
KIND_ARROW = 4

ALIGNMENT_BYTES = 64


class CodecError(ValueError):
    """Records that cannot be encoded, or a payload that cannot be decoded."""


class Codec(Protocol):
    """How a list of records becomes bytes and a list of equal records again."""

    @property
    def kind(self) -> int:
        """The number that names this codec in a message header; 2 to 15."""
        ...

    def encode(self, records: list[Any]) -> list[Buffer]:
        """Return the payload as buffers to be written one after the other.

        The buffers may be the records' own memory: do not change the records until written.
        Raises CodecError.
        """
        ...

    def decode(self, payload: bytes | memoryview) -> list[Any]:
        """Return the records. Raises CodecError when the payload is malformed."""
        ...


class PickleCodec:
    """Any Python objects, by pickle protocol 5.

    Large buffers inside the records (NumPy arrays, Arrow columns) travel out of band: they are
    not copied by encoding, and come out as read-only views on the payload, each aligned to 64
    bytes from the payload's start. Without such buffers the payload is the plain pickle.

    Not re-entrant: a record's own pickling must not call the codec that pickles it.
    """

    kind = KIND_PICKLE

    # Payload with out-of-band buffers: tag, count, size of the pickle, size of each buffer; then
    # the pickle; then the buffers, each after padding. A plain pickle starts with another byte.
    _TAG = int.from_bytes(b"OOB5", "little")
    _PREFIX = struct.Struct("<II")
    _PICKLE_START = 0x80

    def __init__(self) -> None:
        # One list for all calls: a list and its bound append per call cost 80 ns.
        self._out_of_band: list[pickle.PickleBuffer] = []
        self._collect = self._out_of_band.append

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

    def decode(self, payload: bytes | memoryview) -> list[Any]:
        """Return the records; views in them keep the payload alive."""
        try:
            if payload[0] == self._PICKLE_START:
                records = pickle.loads(payload)
            else:
                pickled, buffers = self._disassemble(memoryview(payload).toreadonly())
                records = pickle.loads(pickled, buffers=buffers)
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


class MsgspecCodec:
    """Records of one type, by msgspec's MessagePack: smaller and faster than pickle.

    The type is anything msgspec knows: a Struct, dataclass, NamedTuple, ``tuple[int, str]`` ...
    Decoding checks every record against it; encoding does not.
    """

    kind = KIND_MSGSPEC

    def __init__(self, record_type: Any) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(list[record_type]).decode

    def encode(self, records: list[Any]) -> list[Buffer]:
        """Return one bytes object."""
        try:
            return [self._encode(records)]
        except Exception as error:
            raise CodecError(f"cannot encode {len(records)} records: {error!r}") from error

    def decode(self, payload: bytes | memoryview) -> list[Any]:
        """Return records of the given type; they hold nothing of the payload."""
        try:
            return self._decode(payload)
        except Exception as error:
            raise CodecError(f"no such records in {len(payload)} bytes: {error!r}") from error


class ArrowCodec:
    """Arrow record batches of one schema, as an Arrow IPC stream.

    Neither way copies a column: encoding returns the batches' own buffers, and decoded batches
    reference the payload. Columns are aligned to 8 bytes from the payload's start, as the stream
    format has it. An empty list is an empty payload.
    """

    kind = KIND_ARROW

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


class Decoders:
    """The codecs a receiver understands, by kind.

    >>> codec = PickleCodec()
    >>> Decoders([codec]).decode(codec.kind, codec.encode(["a", 1])[0])
    ['a', 1]
    """

    def __init__(self, codecs: Iterable[Codec]) -> None:
        self._by_kind: dict[int, Codec] = {}
        for codec in codecs:
            if self._by_kind.setdefault(codec.kind, codec) is not codec:
                raise ValueError(f"two codecs of kind {codec.kind}")

    def decode(self, kind: int, payload: bytes | memoryview) -> list[Any]:
        """Decode by the codec of that kind. Raises CodecError, also when there is none."""
        codec = self._by_kind.get(kind)
        if codec is None:
            raise CodecError(f"no codec of kind {kind}; there are {sorted(self._by_kind)}")
        return codec.decode(payload)
