"""The reading side: messages taken out as copies or in place, and the wait for them."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EBUSY, EINTR, errno
from libc.stdint cimport uint64_t

from tailrace.transport.ring.doorbell cimport Doorbell, audible
from tailrace.transport.ring.memory cimport Memory, copy, inherited, mine, usable
from tailrace.transport.ring.native cimport (
    RING_INTERRUPTED, RING_MEMBERS, RING_READABLE,
    descriptor_wait, doorbell_ring, now_ns, ring_crowded, ring_message, ring_peek, ring_reader, ring_reader_arm,
    ring_reader_close, ring_reader_disarm, ring_reader_open, ring_release, ring_spin,
    ring_spin_close, ring_spin_for, ring_spin_open, ring_take, ring_thread, ring_wait,
)

from tailrace.transport.ring.memory import RingError

# Messages from this size on are handed over in place. Smaller ones are not worth a view: to make
# and to release it takes longer than to copy them.
cdef enum:
    IN_PLACE_BYTES = 32768


@cython.final
@cython.no_gc
cdef class Reader:
    """Reads messages. Used by one thread, the one that opened it."""

    cdef ring_reader reader
    cdef ring_spin spinner
    cdef Memory memory
    cdef readonly Doorbell doorbell
    """Rings when a message comes, if the reader has announced by ``arm`` that it sleeps."""
    cdef int exports
    cdef uint64_t thread
    cdef list released  # (position, units) of messages that other threads let go of

    def __cinit__(self, Memory memory, Doorbell doorbell not None):
        cdef int result = ring_reader_open(&self.reader, usable(memory), audible(doorbell))
        if result == -EBUSY:
            raise RingError(f"ring {memory.address} has a living reader; only a shared one has more")
        if result < 0:
            raise RingError(f"ring {memory.address}: all {RING_MEMBERS} places are taken")
        ring_spin_open(&self.spinner)
        self.thread = ring_thread()
        self.memory = memory
        self.doorbell = doorbell

    def __dealloc__(self):
        self._close()

    cdef void _close(self) noexcept:
        if self.memory is None:
            return
        ring_spin_close(&self.spinner)
        if not inherited(self.memory) and not ring_reader_close(&self.reader):
            self.memory.keep = True
        self.memory = None

    cdef inline int _check(self) except -1:
        mine(self.memory, self.thread)
        if self.released is not None:
            self._release_for_others()
        return 0

    cdef int _release_for_others(self) except -1:
        released, self.released = self.released, None
        for position, units in released:
            ring_release(&self.reader, position, units)
        return 0

    cdef int _release_later(self, uint64_t position, uint64_t units) except -1:
        """For another thread: ours may be waiting, without the interpreter's lock."""
        if self.released is None:
            self.released = []
        self.released.append((position, units))
        self.reader.nudged = True
        doorbell_ring(&self.doorbell.bell, self.doorbell.bell.name)
        return 0

    def read(self):
        """The next message in place, or None. See `Message` for how long it may be used."""
        cdef ring_message found
        self._check()
        if not ring_take(&self.reader, &found):
            return None
        return _message(self, &found)

    def read_bytes(self):
        """The next message as a copy, or None. Faster than ``read`` for small messages."""
        cdef ring_message found
        self._check()
        if not ring_take(&self.reader, &found):
            return None
        return self._copy(&found)

    def drain(self, accept, Py_ssize_t limit=256):
        """Call ``accept(target, kind, payload)`` for up to ``limit`` messages; returns for how many.

        The payload is bytes; that of a large message (32 KB and more) is a view in place, a
        memoryview whose ``obj`` is the `Message`. It ends with the call, however that ends: what
        is to be kept must be copied, and a view of it that is kept after all is a BufferError.
        """
        cdef ring_message found
        cdef Py_ssize_t count = 0
        while count < limit:
            self._check()
            if not ring_take(&self.reader, &found):
                break
            count += 1
            if found.length_bytes < IN_PLACE_BYTES:
                accept(found.target, found.kind, self._copy(&found))
            else:
                self._accept_in_place(accept, &found)
        return count

    cdef int _accept_in_place(self, accept, ring_message *found) except -1:
        cdef Message message = _message(self, found)
        view = memoryview(message)
        try:
            accept(found.target, found.kind, view)
        finally:
            view.release()
            message.release()
        return 0

    cdef bytes _copy(self, ring_message *found):
        cdef bytes payload
        try:
            payload = PyBytes_FromStringAndSize(NULL, found.length_bytes)
            copy(PyBytes_AS_STRING(payload), found.data, found.length_bytes)
        finally:
            ring_release(&self.reader, found.position, found.units)
        return payload

    def wait(self, timeout_s=None):
        """Wait until there is a message (True) or the time is over (False).

        Spins as long as lately paid off, never on a crowded machine, and then sleeps.
        """
        cdef uint64_t timeout_ns, started
        cdef int result
        cdef Memory memory = self.memory  # stays mapped, whatever a signal handler closes
        self._check()
        if ring_peek(&self.reader):
            return True
        if timeout_s is None or timeout_s > 1e9:
            timeout_ns = <uint64_t>-1
        elif timeout_s < 0:
            raise ValueError(f"timeout is {timeout_s} s; it must not be negative")
        else:
            timeout_ns = <uint64_t>(timeout_s * 1e9)
        while True:
            started = now_ns()
            with nogil:
                result = ring_wait(&self.reader, &self.spinner, timeout_ns)
            if result != RING_INTERRUPTED:
                return result == RING_READABLE
            PyErr_CheckSignals()
            self._check()
            if timeout_ns != <uint64_t>-1:
                timeout_ns -= min(timeout_ns, now_ns() - started)

    def spin(self, double most_s):
        """Look for a message again and again, at most so long. True: there is one."""
        cdef Memory memory = self.memory  # stays mapped, whatever another thread closes
        cdef uint64_t most_ns = <uint64_t>(most_s * 1e9) if most_s > 0 else 0
        cdef bint found
        self._check()
        with nogil:
            found = ring_spin_for(&self.reader, most_ns)
        return found

    def nap(self, int fd, uint64_t first_ns, uint64_t beat_ns, uint64_t most_ns):
        """Sleep for `first_ns`; then on until there is a message, or `most_ns` are over in all.

        There is a look for one every `beat_ns`.

        Nobody is asked to ring. Ends at once when a descriptor is readable, and says whether it is.
        """
        cdef Memory memory = self.memory  # stays mapped, whatever another thread closes
        cdef uint64_t began, slept, sleep = first_ns
        cdef bint ready = False
        self._check()
        with nogil:
            began = now_ns()
            while True:
                ready = descriptor_wait(fd, sleep)
                if ready or errno == EINTR or ring_peek(&self.reader):
                    break
                slept = now_ns() - began
                if slept >= most_ns:
                    break
                sleep = min(beat_ns, most_ns - slept)
        PyErr_CheckSignals()
        return ready

    def crowded(self):
        """Whether more threads want to run than there are cores, as of some milliseconds ago."""
        self._check()
        return ring_crowded(&self.spinner, now_ns())

    def arm(self):
        """Announce a sleep on the doorbell; ``disarm`` after it.

        Returns for how many milliseconds it is safe to sleep: 0 when there is a message already,
        -1 when the doorbell is sure to ring.
        """
        self._check()
        return ring_reader_arm(&self.reader)

    def disarm(self):
        """Awake again: nobody needs to ring."""
        self._check()
        ring_reader_disarm(&self.reader)

    def close(self):
        """Leave the ring. Refused while a view of a message is held."""
        if self.exports:
            raise BufferError(f"{self.exports} views of messages are still held; release them first")
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


cdef Message _message(Reader reader, ring_message *found):
    cdef Message message = Message.__new__(Message)
    message.reader = reader
    message.found = found[0]
    return message


@cython.freelist(64)
@cython.final
@cython.no_gc
cdef class Message:
    """A message in place, in the ring.

    ``memoryview(message)`` reads it without a copy. Its memory is given back by ``release``, or
    when the last reference to it is gone, and not while any view of it (or a slice, or an array
    built on one) is alive: ``release`` then refuses. After it there is nothing left to misuse.
    """

    cdef Reader reader
    cdef ring_message found
    cdef int exports

    def __init__(self):
        raise TypeError("messages come from Reader.read() and Reader.drain()")

    @property
    def target(self):
        """What the writer gave as target."""
        return self.found.target

    @property
    def kind(self):
        """What the writer gave as kind."""
        return self.found.kind

    def __len__(self):
        return self.found.length_bytes

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.reader is None or self.reader.memory is None:
            raise ValueError("the message has been released")
        usable(self.reader.memory)
        PyBuffer_FillInfo(view, self, <void *>self.found.data, self.found.length_bytes, 1, flags)
        self.exports += 1
        self.reader.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1
        self.reader.exports -= 1

    def release(self):
        """Give the memory back to the writers."""
        if self.exports:
            raise BufferError(f"{self.exports} views of the message are still held")
        self._release()

    cdef void _release(self) noexcept:
        cdef Reader reader = self.reader
        self.reader = None
        if reader is None or reader.memory is None or inherited(reader.memory):
            return
        if reader.thread == ring_thread():
            ring_release(&reader.reader, self.found.position, self.found.units)
        else:
            reader._release_later(self.found.position, self.found.units)

    def __dealloc__(self):
        self._release()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.release()
