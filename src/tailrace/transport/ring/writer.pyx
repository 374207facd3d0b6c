"""The writing side: messages put in, by one copy."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EHOSTUNREACH
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from tailrace.transport.ring.batch cimport BATCH_KIND, RAW_KIND, length_of, write_parts
from tailrace.transport.ring.doorbell cimport Doorbell, audible
from tailrace.transport.ring.memory cimport Memory, copy, inherited, mine, usable
from tailrace.transport.ring.native cimport (
    RING_DONE, RING_MEMBERS, RING_READER,
    doorbell_wait, ring, ring_abort, ring_any_alive, ring_commit, ring_count,
    ring_max_message_bytes, ring_reserve, ring_reserve_or_arm, ring_reserved, ring_thread,
    ring_writer, ring_writer_close, ring_writer_open,
)

from tailrace.transport.ring.memory import RingError

# A writer that waits for room looks this often whether the reader still lives.
cdef enum:
    LOOK_FOR_READER_NS = 100000000


@cython.final
@cython.no_gc
cdef class Writer:
    """Writes messages. Used by one thread, the one that opened it."""

    cdef ring_writer writer
    cdef Memory memory
    cdef Doorbell doorbell
    cdef uint64_t thread

    def __cinit__(self, Memory memory, Doorbell doorbell not None):
        cdef int result = ring_writer_open(&self.writer, usable(memory), audible(doorbell))
        if result == -EHOSTUNREACH:
            raise RingError(
                f"ring {memory.address}: its reader cannot be woken from here; it is in another"
                " network namespace"
            )
        if result < 0:
            raise RingError(f"ring {memory.address}: all {RING_MEMBERS} places are taken")
        self.thread = ring_thread()
        self.memory = memory
        self.doorbell = doorbell

    def __dealloc__(self):
        self._close()

    cdef void _close(self) noexcept:
        if self.memory is None:
            return
        if not inherited(self.memory) and not ring_writer_close(&self.writer):
            self.memory.keep = True
        self.memory = None

    def send(self, data, uint32_t target=0, uint32_t kind=RAW_KIND, *, bint wait=True):
        """Put a message in: one copy of ``data`` (any bytes-like object).

        Returns True when it is in. When the ring is full: waits for room; or with ``wait=False``
        returns False at once, with nothing taken, and the doorbell rings when there is room.

        ``target`` and ``kind`` (0 to 15; 0 raw, 1 batch) travel along for the reader to see.
        """
        cdef Py_buffer view
        if type(data) is bytes:
            return self._send(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
                              target, kind, wait)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return self._send(<const uint8_t *>view.buf, view.len, target, kind, wait)
        finally:
            PyBuffer_Release(&view)

    cdef bint _send(self, const uint8_t *data, Py_ssize_t length, uint32_t target, uint32_t kind,
                    bint wait) except -1:
        while self._reserve(length, kind, wait):
            copy(ring_reserved(&self.writer), data, length)
            if ring_commit(&self.writer, <uint32_t>length, target, kind) == RING_DONE:
                return True
        return False

    def send_parts(self, list parts not None, uint32_t target=0, uint32_t kind=RAW_KIND, *,
                   bint wait=True):
        """Like ``send``, for a message that consists of several buffers one after the other."""
        return self._send_parts(parts, target, kind, wait, 0)

    def send_batch(self, list records not None, uint32_t target=0, *, bint wait=True):
        """One message of kind 1 that holds many records, for ``copies_of``."""
        return self._send_parts(records, target, BATCH_KIND, wait, 4)

    cdef bint _send_parts(self, list parts, uint32_t target, uint32_t kind, bint wait,
                          Py_ssize_t prefix_bytes) except -1:
        cdef Py_ssize_t total = length_of(parts, prefix_bytes)
        while self._reserve(total, kind, wait):
            try:
                write_parts(ring_reserved(&self.writer), total, parts, prefix_bytes)
            except BaseException:
                ring_abort(&self.writer)
                raise
            if ring_commit(&self.writer, <uint32_t>total, target, kind) == RING_DONE:
                return True
        return False

    cdef bint _reserve(self, Py_ssize_t length, uint32_t kind, bint wait) except -1:
        cdef ring *r = mine(self.memory, self.thread)
        if self.writer.open:
            raise RingError("this writer is in the middle of a message; send one after the other")
        if <uint64_t>length > ring_max_message_bytes(r) or length < 0:
            raise ValueError(
                f"message is {length} bytes; this ring takes 0 to {ring_max_message_bytes(r)}"
                " (half of its size)"
            )
        if kind > 15:
            raise ValueError(f"kind is {kind}; it must be 0 to 15")
        return ring_reserve(&self.writer, length) == RING_DONE or self._wait_for_room(length, wait)

    cdef bint _wait_for_room(self, Py_ssize_t length, bint wait) except -1:
        cdef bint rung
        cdef Memory memory = self.memory  # stays mapped, whatever a signal handler closes
        cdef ring *r = &memory.ring
        ring_count(&r.control.members[self.writer.member].counts.full_waits, 1)
        while ring_reserve_or_arm(&self.writer, length) != RING_DONE:
            if not wait:
                return False
            with nogil:
                rung = doorbell_wait(&self.doorbell.bell, LOOK_FOR_READER_NS)
            PyErr_CheckSignals()
            usable(self.memory)
            if not rung and r.control.readers and not ring_any_alive(r, RING_READER):
                raise RingError(f"ring {memory.address} is full and its reader has ended")
        return True

    def close(self):
        """Give the place up. What was sent stays sent."""
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
