# cython: language_level=3
"""Cuts a stream of bytes into frames, and gathers small ones; see `frame.py` for what a frame is."""

from cpython.buffer cimport PyBUF_WRITE, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport UINT32_MAX, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef extern from "Python.h":
    object PyType_GenericAlloc(type, Py_ssize_t)
    void PyObject_GC_UnTrack(void *)

from tailrace.transport.frame import MAX_KIND, Frame, FrameError, frame_header

cdef enum:
    HEAD_BYTES = 12

cdef int MOST_KIND = MAX_KIND
cdef type _frame = Frame


cdef enum:
    BLOCK_BYTES = 72 * 1024
    SPARE_BLOCKS = 32

cdef char *_spare[SPARE_BLOCKS]  # what fresh memory costs is the pages that the system gives first
cdef int _spares = 0


cdef class Gathered:
    """Small frames one behind the other, copied, to go out together; a buffer that is read only.

    It holds at most `room_bytes`, and no payload above `most_bytes`. It may grow while views of it
    are in use: they keep showing what they did.

    >>> small = Gathered(room_bytes=1000, most_bytes=100)
    >>> small.add(7, 2, [b"h", b"i"])
    14
    >>> bytes(small)
    b'\\x02\\x00\\x00\\x00\\x07\\x00\\x00\\x00\\x02\\x00\\x00\\x00hi'
    """

    cdef char *_at
    cdef Py_ssize_t _filled_bytes, _room_bytes, _most_bytes

    def __cinit__(self, Py_ssize_t room_bytes, Py_ssize_t most_bytes):
        global _spares
        if _spares:
            _spares -= 1
            self._at = _spare[_spares]
        else:
            self._at = <char *>malloc(BLOCK_BYTES)
            if self._at == NULL:
                raise MemoryError
        self._filled_bytes = 0
        self._room_bytes = min(room_bytes, <Py_ssize_t>BLOCK_BYTES)
        self._most_bytes = most_bytes

    def __dealloc__(self):
        global _spares
        if self._at != NULL and _spares < SPARE_BLOCKS:
            _spare[_spares] = self._at
            _spares += 1
        else:
            free(self._at)

    def __len__(self):
        return self._filled_bytes

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._at, self._filled_bytes, 1, flags)

    def add(self, target, kind, buffers):
        """Append a frame with these as its payload, and return its size; 0 if it does not fit.

        The same bytes as those of `frame_header` and the payload, and refused alike.
        """
        cdef Py_ssize_t left = self._room_bytes - self._filled_bytes - HEAD_BYTES, size
        cdef long long number = target, sort = kind
        cdef const uint8_t[::1] view
        cdef char *head = self._at + self._filled_bytes
        cdef char *out = head + HEAD_BYTES
        cdef uint32_t word
        if not (0 <= number <= UINT32_MAX and 0 <= sort <= MOST_KIND):
            frame_header(0, target, kind)  # raises
        left = min(left, self._most_bytes)
        for buffer in buffers:
            if type(buffer) is bytes:
                size = PyBytes_GET_SIZE(buffer)
                if size > left:
                    return 0
                memcpy(out, PyBytes_AS_STRING(buffer), size)
            else:
                view = buffer
                size = view.shape[0]
                if size > left:
                    return 0
                if size:
                    memcpy(out, &view[0], size)
            left -= size
            out += size
        if left < 0:
            return 0
        word = out - head - HEAD_BYTES
        memcpy(head, &word, 4)  # little-endian, as all machines that Spark runs on
        word = number
        memcpy(head + 4, &word, 4)
        head[8] = sort
        head[9] = head[10] = head[11] = 0
        self._filled_bytes += out - head
        return out - head


cdef object _framed(target, kind, body):
    """A Frame, of which the collector knows nothing: it can be part of no cycle.

    Thousands may come in a batch, and be alive until it is over.
    """
    frame = PyType_GenericAlloc(_frame, 3)
    PyObject_GC_UnTrack(<void *>frame)
    Py_INCREF(target)
    PyTuple_SET_ITEM(frame, 0, target)
    Py_INCREF(kind)
    PyTuple_SET_ITEM(frame, 1, kind)
    Py_INCREF(body)
    PyTuple_SET_ITEM(frame, 2, body)
    return frame


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

    @property
    def body_bytes(self):
        """The size of the payload that is under way; 0 between frames."""
        return 0 if self._body is None else self._body_bytes

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
        if self._kind > MOST_KIND or head[9] or reserved:
            self._fail(
                "malformed",
                f"frame header with kind {self._kind}, flags {head[9]}, reserved {reserved}; "
                f"kind must be at most {MOST_KIND} and the rest 0",
            )
        self._body = PyBytes_FromStringAndSize(NULL, payload_bytes)
        self._body_bytes = payload_bytes
        self._arrived_bytes = 0
        self._deliver_if_whole(frames)

    cdef _deliver_if_whole(self, list frames):
        if self._arrived_bytes == self._body_bytes:
            frames.append(_framed(self._target, self._kind, self._body))
            self._body = None

    cdef _fail(self, reason, message):
        self._failure = reason, message
        raise FrameError(reason, message)
