# cython: language_level=3
"""Cuts a stream of bytes into frames, and gathers small ones; see `frame.py` for what a frame is."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_WRITE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from tailrace.transport.frame import MAX_KIND, MAX_TARGET, Frame, FrameError, frame_header

cdef enum:
    HEAD_BYTES = 12

cdef object _new = tuple.__new__


def gather(bytearray into not None, Py_ssize_t payload_bytes, target, kind, buffers):
    """Append a frame whose buffers have so many bytes together, with its header; all are copied.

    The same bytes as those of `frame_header`, and refused alike.

    >>> small = bytearray()
    >>> gather(small, 2, 7, 2, [b"h", b"i"])
    >>> bytes(small)
    b'\\x02\\x00\\x00\\x00\\x07\\x00\\x00\\x00\\x02\\x00\\x00\\x00hi'
    """
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(into), left = payload_bytes, size
    cdef uint32_t length = payload_bytes, number
    cdef const uint8_t[::1] view
    cdef char *out
    if not (0 <= target <= MAX_TARGET and 0 <= kind <= MAX_KIND):
        frame_header(payload_bytes, target, kind)  # raises
    number = target
    PyByteArray_Resize(into, before + HEAD_BYTES + payload_bytes)
    out = PyByteArray_AS_STRING(into) + before
    memcpy(out, &length, 4)
    memcpy(out + 4, &number, 4)
    out[8] = kind
    out[9] = out[10] = out[11] = 0
    out += HEAD_BYTES
    for buffer in buffers:
        if type(buffer) is bytes:
            size = PyBytes_GET_SIZE(buffer)
            if size <= left:
                memcpy(out, PyBytes_AS_STRING(buffer), size)
        else:
            view = buffer
            size = view.shape[0]
            if 0 < size <= left:
                memcpy(out, &view[0], size)
        left -= size
        if left < 0:
            break
        out += size
    if left:
        PyByteArray_Resize(into, before)
        raise ValueError(f"the buffers do not have {payload_bytes} bytes together, as was said")


cdef class FrameDecoder:
    """Cuts a stream of chunks into frames, however the stream was chopped.

    A large payload can be received straight into its own memory (`missing`, `filled`); all others
    are copied once, from the chunk, or twice. Memory held between chunks is at most one header and
    one payload of `max_frame_bytes`. Frames that precede a malformed one are delivered; after it
    the decoder refuses to go on and raises the same error for ever.

    >>> from tailrace.transport.frame import frame_header
    >>> decoder, frames = FrameDecoder(max_frame_bytes=100), []
    >>> stream = frame_header(2, target=7, kind=2) + b"hi"
    >>> decoder.feed(stream[:5], frames), frames
    (None, [])
    >>> decoder.feed(stream[5:], frames), frames
    (None, [Frame(target=7, kind=2, payload=b'hi')])
    """

    cdef Py_ssize_t _max_frame_bytes
    cdef uint8_t _head[HEAD_BYTES]  # a header that has not arrived in full
    cdef Py_ssize_t _head_bytes
    cdef bytes _body  # the payload of the frame that is under way; nobody else has it yet
    cdef Py_ssize_t _body_bytes  # how large it will be
    cdef Py_ssize_t _arrived_bytes  # how much of it is there
    cdef uint32_t _target
    cdef uint8_t _kind
    cdef tuple _failure

    def __init__(self, Py_ssize_t max_frame_bytes):
        self._max_frame_bytes = max_frame_bytes

    @property
    def partial_bytes(self):
        """Bytes of an unfinished frame; not zero at the end of a stream means it was truncated."""
        return self._head_bytes if self._body is None else HEAD_BYTES + self._arrived_bytes

    @property
    def missing_bytes(self):
        """How much of the payload that is under way has not arrived; 0 between frames."""
        return 0 if self._body is None else self._body_bytes - self._arrived_bytes

    def missing(self):
        """Where the rest of the payload that is under way belongs.

        To be written before the next call of anything here, and forgotten then.
        """
        if self._body is None:
            raise ValueError("no payload is under way")
        return PyMemoryView_FromMemory(
            PyBytes_AS_STRING(self._body) + self._arrived_bytes,
            self._body_bytes - self._arrived_bytes,
            PyBUF_WRITE,
        )

    def filled(self, Py_ssize_t size_bytes, list frames not None):
        """So many bytes have been put into `missing`."""
        if self._body is None or not 0 <= size_bytes <= self._body_bytes - self._arrived_bytes:
            raise ValueError(f"{size_bytes} bytes; {self.missing_bytes} are missing")
        self._arrived_bytes += size_bytes
        self._deliver_if_whole(frames)

    def feed(self, const uint8_t[::1] chunk, list frames not None):
        """Append to `frames` those that this chunk completes; nothing of it is kept.

        Raises FrameError at the first malformed or oversized header; the frames before it have
        been appended by then.
        """
        cdef Py_ssize_t left = chunk.shape[0]
        cdef const uint8_t *at
        cdef Py_ssize_t taken
        if self._failure is not None:
            raise FrameError(*self._failure)
        if left == 0:
            return
        at = &chunk[0]
        while left:
            if self._body is not None:
                taken = min(left, self._body_bytes - self._arrived_bytes)
                memcpy(PyBytes_AS_STRING(self._body) + self._arrived_bytes, at, taken)
                self._arrived_bytes += taken
                at += taken
                left -= taken
                self._deliver_if_whole(frames)
            elif self._head_bytes or left < HEAD_BYTES:
                taken = min(left, HEAD_BYTES - self._head_bytes)
                memcpy(self._head + self._head_bytes, at, taken)
                self._head_bytes += taken
                at += taken
                left -= taken
                if self._head_bytes == HEAD_BYTES:
                    self._head_bytes = 0
                    self._begin(self._head, frames)
            else:
                self._begin(at, frames)
                at += HEAD_BYTES
                left -= HEAD_BYTES

    cdef _begin(self, const uint8_t *head, list frames):
        """A whole header: the payload behind it is under way now."""
        cdef uint32_t payload_bytes
        cdef uint16_t reserved
        memcpy(&payload_bytes, head, 4)  # little-endian, as all machines that Spark runs on
        memcpy(&self._target, head + 4, 4)
        memcpy(&reserved, head + 10, 2)
        self._kind = head[8]
        if <Py_ssize_t>payload_bytes > self._max_frame_bytes:
            self._fail(
                "oversized",
                f"frame of {payload_bytes} bytes for target {self._target}; "
                f"the cap is {self._max_frame_bytes}",
            )
        if self._kind > MAX_KIND or head[9] or reserved:
            self._fail(
                "malformed",
                f"frame header with kind {self._kind}, flags {head[9]}, reserved {reserved}; "
                f"kind must be at most {MAX_KIND} and the rest 0",
            )
        self._body = PyBytes_FromStringAndSize(NULL, payload_bytes)
        self._body_bytes = payload_bytes
        self._arrived_bytes = 0
        self._deliver_if_whole(frames)

    cdef _deliver_if_whole(self, list frames):
        if self._arrived_bytes == self._body_bytes:
            frames.append(_new(Frame, (self._target, self._kind, self._body)))
            self._body = None

    cdef _fail(self, reason, message):
        self._failure = reason, message
        raise FrameError(reason, message)
