"""The ring (OSRBuffer): messages between the processes of one node, through shared memory.

One process creates a ring, others attach to it by its address. Many writers (256 members in all)
put messages in, one copy, without locks; one reader takes them out, in place or as copies.
With ``shared=True`` several readers share the ring and each message goes to one of them.

>>> with Ring.create(1 << 16) as ring, ring.reader() as reader, ring.writer() as writer:
...     writer.send(b"hello", target=7)
...     message = reader.read()
...     message.target, bytes(message)
True
(7, b'hello')

What is guaranteed

- A sent message is delivered once. Messages of one writer arrive in the order they were sent
  (exclusive ring); between writers there is no order.
- A writer that dies between reserving and committing costs that one message, counted as ``lost``;
  a writer that dies before or after costs nothing. The reader asks whether the writer lives as soon
  as it has nothing else to do; a sleeping reader does so within 10 ms.
- A message whose writer is alive but slow does not hold up those behind it. When ``window``
  messages have passed it, it is skipped; its writer then learns so, and ``send`` puts it in again,
  with twice the window: late, never lost.
- Memory is given back in order, and never while somebody may still read or write it.
- The memory has no name in any file system and is gone with the last process that maps it.

What is not: a reader that takes over from a dead one may see messages again that the dead one had
taken; on a shared ring, messages a dead reader had taken and not released are counted as ``lost``.
Writers and readers belong to the thread that opened them: others are refused, and when it ends they
count as dead. On a full ring small messages find room more easily than large ones.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release
from cpython.buffer cimport PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EBUSY, EHOSTUNREACH
cimport cython
from libc.string cimport memcpy
from libc.stdint cimport uint8_t, uint32_t, uint64_t

import os
import re

cdef extern from "native/doorbell.h" nogil:
    ctypedef struct doorbell:
        int fd
        uint8_t name[16]
    int doorbell_open(doorbell *)
    void doorbell_close(doorbell *)
    bint doorbell_ring(const doorbell *, const uint8_t *)
    void doorbell_clear(const doorbell *)
    bint doorbell_wait(const doorbell *, uint64_t)

cdef extern from "native/numa.h" nogil:
    int ring_on_node(ring *, unsigned)

cdef extern from "native/wait.h" nogil:
    const unsigned RING_MIN_BYTES, RING_MAX_BYTES, RING_MEMBERS, RING_UNIT_BYTES, RING_VERSION
    int RING_DONE, RING_NOT_A_RING, RING_OTHER_VERSION, RING_OTHER_SIZE
    int RING_READABLE, RING_INTERRUPTED, RING_READER

    ctypedef struct ring_counts:
        uint64_t sent, sent_bytes, full_waits, resent
        uint64_t received, received_bytes, sleeps, skipped, lost, wakes
    ctypedef struct ring_member:
        ring_counts counts
    ctypedef struct ring_control:
        uint32_t peak, readers
        uint64_t tail, head
        uint8_t nonce[16]
        ring_member members[256]
    ctypedef struct ring:
        ring_control *control
        uint64_t capacity
        int fd
    ctypedef struct ring_message:
        uint64_t position, units
        const uint8_t *data
        uint32_t length_bytes, target, kind
    ctypedef struct ring_writer:
        bint open
        unsigned member
    ctypedef struct ring_reader:
        bint nudged
    ctypedef struct ring_spin:
        pass

    int ring_create(ring *, uint64_t, bint, uint64_t)
    int ring_attach(ring *, int, const uint8_t *, uint64_t *)
    void ring_unmap(ring *)
    bint ring_inherited(const ring *)
    unsigned ring_forks
    uint64_t ring_thread()
    void ring_count(uint64_t *, uint64_t)
    bint ring_any_alive(ring *, int)
    uint64_t ring_max_message_bytes(const ring *)
    uint64_t ring_ahead(uint64_t, uint64_t)
    uint64_t tail_position(uint64_t)

    int ring_writer_open(ring_writer *, ring *, doorbell *)
    bint ring_writer_close(ring_writer *)
    int ring_reserve(ring_writer *, uint64_t)
    int ring_reserve_or_arm(ring_writer *, uint64_t)
    uint8_t *ring_reserved(const ring_writer *)
    int ring_commit(ring_writer *, uint32_t, uint32_t, uint32_t)
    void ring_abort(ring_writer *)

    int ring_reader_open(ring_reader *, ring *, doorbell *)
    bint ring_reader_close(ring_reader *)
    bint ring_peek(ring_reader *)
    bint ring_take(ring_reader *, ring_message *)
    void ring_release(ring_reader *, uint64_t, uint64_t)
    int ring_reader_arm(ring_reader *)
    void ring_reader_disarm(ring_reader *)
    void ring_spin_open(ring_spin *)
    void ring_spin_close(ring_spin *)
    bint ring_spin_for(ring_reader *, ring_spin *, uint64_t)
    bint ring_crowded(ring_spin *, uint64_t)
    void ring_arrived(ring_spin *, const ring_reader *, uint64_t)
    bint ring_expected(const ring_spin *, const ring_reader *, uint64_t *, uint64_t *)
    int ring_wait(ring_reader *, ring_spin *, uint64_t)
    uint64_t now_ns()

# A copy longer than this lets other threads of the process run meanwhile.
cdef enum:
    LONG_COPY_BYTES = 65536
    # A writer that waits for room looks this often whether the reader still lives.
    LOOK_FOR_READER_NS = 100000000

RAW = 0
BATCH = 1


_COUNTERS = (
    "sent", "sent_bytes", "received", "received_bytes", "full_waits", "sleeps", "wakes", "skipped",
    "resent", "lost",
)


class RingError(Exception):
    """The ring cannot be used: not reachable, not a ring, no place left, or nobody at its end."""


cdef class Doorbell:
    """Something to sleep on, in any poll or epoll, that other processes ring through a ring.

    One doorbell can serve all the rings a thread takes part in. A ring is remembered until
    ``clear``, so ring-then-sleep does not sleep.
    """

    cdef doorbell bell
    cdef unsigned born

    def __cinit__(self):
        self.bell.fd = -1
        self.born = ring_forks
        cdef int error = doorbell_open(&self.bell)
        if error < 0:
            raise RingError(f"cannot open a doorbell: {os.strerror(-error)}")

    def __dealloc__(self):
        doorbell_close(&self.bell)

    def fileno(self):
        """The descriptor to wait on until it is readable."""
        return self.bell.fd

    def ring(self):
        """Ring it oneself, from any thread of the process."""
        doorbell_ring(_audible(self), self.bell.name)

    def clear(self):
        """Take one ring back, after the descriptor was readable."""
        doorbell_clear(_audible(self))

    def close(self):
        """Close it. Rings that still name it lose nothing but the wake-up."""
        doorbell_close(&self.bell)


cdef doorbell *_audible(Doorbell self) except NULL:
    if self.bell.fd < 0:
        raise RingError("the doorbell is closed")
    if self.born != ring_forks:
        raise RingError("this doorbell is the parent process's; a forked child needs its own")
    return &self.bell


cdef class _Memory:
    """The mapping. Ring, writers, readers and messages hold it; it goes with the last of them."""

    cdef ring ring
    cdef bint keep  # a lifeline of another thread is still in it

    def __cinit__(self):
        self.ring.fd = -1

    def __dealloc__(self):
        if not self.keep:
            ring_unmap(&self.ring)


cdef ring *_usable(_Memory memory) except NULL:
    if memory is None:
        raise RingError("the ring is closed")
    if ring_inherited(&memory.ring):
        raise RingError(
            f"this ring was opened by the parent of process {os.getpid()}; a forked child has no"
            " place in it: use Ring.attach(ring.address) in the child"
        )
    return &memory.ring


cdef inline ring *_mine(_Memory memory, uint64_t thread) except NULL:
    """`_usable`, for members: by the thread that opened them."""
    if memory is None or ring_inherited(&memory.ring):
        return _usable(memory)
    if thread != ring_thread():
        raise RingError("used by another thread than the one that opened it")
    return &memory.ring


cdef str _refusal(int result, uint64_t found):
    if result == RING_NOT_A_RING:
        return f"not a ring (it starts with, or is only as long as, {found:#x})"
    if result == RING_OTHER_VERSION:
        return f"ring layout version {found}; this process speaks {RING_VERSION}"
    if result == RING_OTHER_SIZE:
        return f"its {found} bytes are not the size it says it has"
    return "another ring is there now; the one of this address has ended"


cdef class Ring:
    """A ring, as its creator or somebody attached to it. Writers and readers are opened from it."""

    cdef _Memory memory
    cdef readonly str address
    """Where others attach: valid on this node, for this user, while the creator's ring is open."""

    def __init__(self):
        raise TypeError("use Ring.create(size_bytes) or Ring.attach(address)")

    @staticmethod
    def create(size_bytes, *, bint shared=False, window=64):
        """A new ring with room for ``size_bytes`` of payload (a power of two, or the next one).

        A message may take up to half of it. ``window`` is how many messages may pass one that is
        still being written before that one is skipped.
        """
        if not RING_MIN_BYTES <= size_bytes <= RING_MAX_BYTES:
            raise ValueError(
                f"ring size is {size_bytes} bytes; it must be {RING_MIN_BYTES} to {RING_MAX_BYTES}"
            )
        if window < 1:
            raise ValueError(f"window is {window}; it must be at least 1 message")
        cdef Ring self = Ring.__new__(Ring)
        self.memory = _Memory()
        cdef int error = ring_create(&self.memory.ring, size_bytes, shared, window)
        if error < 0:
            raise RingError(f"cannot create a ring of {size_bytes} bytes: {os.strerror(-error)}")
        cdef bytes nonce = self.memory.ring.control.nonce[:16]
        self.address = f"{os.getpid()}/{self.memory.ring.fd}/{nonce.hex()}"
        return self

    @staticmethod
    def attach(str address):
        """The ring of that address, or a RingError that says why it cannot be had."""
        match = re.fullmatch(r"(\d+)/(\d+)/([0-9a-f]{32})", address)
        if match is None:
            raise RingError(f"{address!r} is not the address of a ring (pid/descriptor/nonce)")
        cdef bytes nonce = bytes.fromhex(match[3])
        cdef Ring self = Ring.__new__(Ring)
        cdef uint64_t found = 0
        cdef int fd, result
        try:
            fd = os.open(f"/proc/{match[1]}/fd/{match[2]}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise RingError(
                f"ring {address} cannot be reached ({error.strerror}): its creator has ended, or is"
                " on another node or of another user"
            ) from None
        self.memory = _Memory()
        try:
            result = ring_attach(&self.memory.ring, fd, nonce, &found)
        finally:
            os.close(fd)
        if result < 0:
            raise RingError(f"ring {address} cannot be mapped: {os.strerror(-result)}")
        if result != 0:
            raise RingError(f"{address} refused: {_refusal(result, found)}")
        self.address = address
        return self

    def __reduce__(self):
        return Ring.attach, (self.address,)

    def writer(self, Doorbell doorbell=None):
        """A place to write from, for the calling thread. The doorbell rings when room comes."""
        return Writer(self, doorbell or Doorbell())

    def reader(self, Doorbell doorbell=None):
        """The place to read from, for the calling thread. The doorbell rings when a message comes.

        A ring has one living reader at a time, unless it is shared.
        """
        return Reader(self, doorbell or Doorbell())

    @property
    def size_bytes(self):
        """The room for payload."""
        return _usable(self.memory).capacity * RING_UNIT_BYTES

    @property
    def max_message_bytes(self):
        """The longest message it takes."""
        return ring_max_message_bytes(_usable(self.memory))

    def settle(self, unsigned numa_node):
        """Have its memory on a NUMA node: the one that its reader runs on is best.

        Holds for memory that has not been used yet. A node that is full leaves it to the system.
        """
        cdef int error = ring_on_node(_usable(self.memory), numa_node)
        if error < 0:
            raise RingError(
                f"the memory of ring {self.address} cannot be moved to NUMA node {numa_node}:"
                f" {os.strerror(-error)}"
            )

    def counters(self):
        """What has gone through, as anybody attached may see it, at about this moment.

        ``full_waits``: sends that found no room. ``sleeps``: of readers. ``wakes``: doorbells rung.
        ``skipped``: messages a full window passed over; ``resent``: those whose writer noticed and
        sent them again. ``lost``: messages whose writer (shared: or reader) died with them.
        ``fill``: the part of the ring in use, 0 to 1.
        """
        cdef ring *r = _usable(self.memory)
        cdef ring_control *c = r.control
        cdef ring_counts *n
        cdef unsigned i
        totals = dict.fromkeys(_COUNTERS, 0)
        for i in range(c.peak):
            n = &c.members[i].counts
            for name, count in zip(
                _COUNTERS,
                (n.sent, n.sent_bytes, n.received, n.received_bytes, n.full_waits, n.sleeps,
                 n.wakes, n.skipped, n.resent, n.lost),
                strict=True,
            ):
                totals[name] += count
        cdef uint64_t head = c.head
        cdef double used = ring_ahead(tail_position(c.tail), head)
        totals["fill"] = min(1.0, used / r.capacity)
        return totals

    def close(self):
        """Forget the memory. Members opened from it go on; the creator's address ends with the last
        of them."""
        self.memory = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


@cython.no_gc
cdef class Writer:
    """Writes messages. Used by one thread, the one that opened it."""

    cdef ring_writer writer
    cdef _Memory memory
    cdef Doorbell doorbell
    cdef str address
    cdef uint64_t thread
    cdef int exports  # views of the open reservation

    def __cinit__(self, Ring ring not None, Doorbell doorbell not None):
        cdef _Memory memory = ring.memory
        cdef int result = ring_writer_open(&self.writer, _usable(memory), _audible(doorbell))
        if result == -EHOSTUNREACH:
            raise RingError(
                f"ring {ring.address}: its reader cannot be woken from here; it is in another"
                " network namespace"
            )
        if result < 0:
            raise RingError(f"ring {ring.address}: all {RING_MEMBERS} places are taken")
        self.thread = ring_thread()
        self.memory = memory
        self.doorbell = doorbell
        self.address = ring.address

    def __dealloc__(self):
        self._close()

    cdef void _close(self) noexcept:
        if self.memory is None:
            return
        if not ring_inherited(&self.memory.ring) and not ring_writer_close(&self.writer):
            self.memory.keep = True
        self.memory = None

    def send(self, data, uint32_t target=0, uint32_t kind=RAW, *, bint wait=True):
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
        cdef uint8_t *into
        while self._reserve(length, kind, wait):
            into = ring_reserved(&self.writer)
            if length > LONG_COPY_BYTES:
                with nogil:
                    memcpy(into, data, length)
            else:
                memcpy(into, data, length)
            if ring_commit(&self.writer, <uint32_t>length, target, kind) == RING_DONE:
                return True
        return False

    def send_parts(self, list parts not None, uint32_t target=0, uint32_t kind=RAW, *,
                   bint wait=True):
        """Like ``send``, for a message that consists of several buffers one after the other."""
        return self._send_parts(parts, target, kind, wait, 0)

    def send_batch(self, list records not None, uint32_t target=0, *, bint wait=True):
        """One message of kind BATCH that holds many records, for ``records_of`` or ``copies_of``."""
        return self._send_parts(records, target, BATCH, wait, 4)

    cdef bint _send_parts(self, list parts, uint32_t target, uint32_t kind, bint wait,
                          Py_ssize_t prefix_bytes) except -1:
        cdef Py_ssize_t total = 0
        for part in parts:
            total += prefix_bytes + _length(part)
        while self._reserve(total, kind, wait):
            try:
                _write_parts(ring_reserved(&self.writer), total, parts, prefix_bytes)
            except BaseException:
                ring_abort(&self.writer)
                raise
            if ring_commit(&self.writer, <uint32_t>total, target, kind) == RING_DONE:
                return True
        return False

    def reserve(self, Py_ssize_t length, uint32_t target=0, uint32_t kind=RAW, *, bint wait=True):
        """Room for a message of that length, to be filled in place; None when full and not waiting.

        Nothing else can be sent from here until it is committed or given up.
        """
        if not self._reserve(length, kind, wait):
            return None
        return _reservation(self, length, target, kind)

    cdef bint _reserve(self, Py_ssize_t length, uint32_t kind, bint wait) except -1:
        cdef ring *r = _mine(self.memory, self.thread)
        if self.writer.open:
            raise RingError("a reservation of this writer is open; commit it or give it up first")
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
        cdef _Memory memory = self.memory  # stays mapped, whatever a signal handler closes
        cdef ring *r = &memory.ring
        ring_count(&r.control.members[self.writer.member].counts.full_waits, 1)
        while ring_reserve_or_arm(&self.writer, length) != RING_DONE:
            if not wait:
                return False
            with nogil:
                rung = doorbell_wait(&self.doorbell.bell, LOOK_FOR_READER_NS)
            PyErr_CheckSignals()
            _usable(self.memory)
            if not rung and r.control.readers and not ring_any_alive(r, RING_READER):
                raise RingError(f"ring {self.address} is full and its reader has ended")
        return True

    def close(self):
        """Give the place up, and an open reservation with it. What was sent stays sent.

        Refused while a view of the reservation is held.
        """
        if self.exports:
            raise BufferError(f"{self.exports} views of a reservation are still held")
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


cdef Writer _open_writer(Reservation self):
    if self.writer is None or self.writer.memory is None or not self.writer.writer.open:
        raise ValueError("the reservation has ended")
    _mine(self.writer.memory, self.writer.thread)
    return self.writer


cdef Reservation _reservation(Writer writer, Py_ssize_t length, uint32_t target, uint32_t kind):
    cdef Reservation self = Reservation.__new__(Reservation)
    self.writer = writer
    self.data = ring_reserved(&writer.writer)
    self.length = length
    self.target = target
    self.kind = kind
    return self


@cython.no_gc
cdef class Reservation:
    """Room in the ring to write a message in place, through ``memoryview(reservation)``."""

    cdef Writer writer
    cdef uint8_t *data
    cdef Py_ssize_t length
    cdef uint32_t target, kind

    def __getbuffer__(self, Py_buffer *view, int flags):
        _open_writer(self)
        PyBuffer_FillInfo(view, self, self.data, self.length, 0, flags)
        self.writer.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.writer.exports -= 1

    def __len__(self):
        return self.length

    cdef Writer _end(self):
        cdef Writer writer = _open_writer(self)
        if writer.exports:
            raise BufferError(f"{writer.exports} views of the reservation are still held")
        self.writer = None
        return writer

    def commit(self):
        """Send it. False: it took so long that the reader skipped it; write it again."""
        cdef Writer writer = self._end()
        return ring_commit(&writer.writer, <uint32_t>self.length, self.target,
                           self.kind) == RING_DONE

    def abort(self):
        """Give it up: the reader passes it by."""
        cdef Writer writer = self._end()
        ring_abort(&writer.writer)

    def __dealloc__(self):
        cdef Writer writer = self.writer
        if writer is not None and writer.memory is not None:
            if not ring_inherited(&writer.memory.ring):
                ring_abort(&writer.writer)


@cython.no_gc
cdef class Reader:
    """Reads messages. Used by one thread, the one that opened it."""

    cdef ring_reader reader
    cdef ring_spin spinner
    cdef _Memory memory
    cdef readonly Doorbell doorbell
    """Rings when a message comes, if the reader has announced by ``arm`` that it sleeps."""
    cdef int exports
    cdef uint64_t thread
    cdef list released  # (position, units) of messages that other threads let go of

    def __cinit__(self, Ring ring not None, Doorbell doorbell not None):
        cdef _Memory memory = ring.memory
        cdef int result = ring_reader_open(&self.reader, _usable(memory), _audible(doorbell))
        if result == -EBUSY:
            raise RingError(f"ring {ring.address} has a living reader; only a shared one has more")
        if result < 0:
            raise RingError(f"ring {ring.address}: all {RING_MEMBERS} places are taken")
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
        if not ring_inherited(&self.memory.ring) and not ring_reader_close(&self.reader):
            self.memory.keep = True
        self.memory = None

    cdef int _check(self) except -1:
        _mine(self.memory, self.thread)
        if self.released is not None:
            released, self.released = self.released, None
            for position, units in released:
                ring_release(&self.reader, position, units)
        return 0

    def read(self):
        """The next message in place, or None. See `Message` for how long it may be used."""
        cdef ring_message found
        self._check()
        if not ring_take(&self.reader, &found):
            return None
        cdef Message message = Message.__new__(Message)
        message.reader = self
        message.found = found
        return message

    def read_bytes(self):
        """The next message as a copy, or None. Faster than ``read`` for small messages."""
        cdef ring_message found
        self._check()
        if not ring_take(&self.reader, &found):
            return None
        return self._copy(&found)

    def drain(self, Py_ssize_t limit=256):
        """Up to ``limit`` messages as copies: a list of (target, kind, payload)."""
        cdef ring_message found
        cdef list messages = []
        self._check()
        while limit > 0 and ring_take(&self.reader, &found):
            messages.append((found.target, found.kind, self._copy(&found)))
            limit -= 1
        return messages

    cdef bytes _copy(self, ring_message *found):
        cdef bytes copy
        cdef char *into
        try:
            copy = PyBytes_FromStringAndSize(NULL, found.length_bytes)
            into = PyBytes_AS_STRING(copy)
            if found.length_bytes > LONG_COPY_BYTES:
                with nogil:
                    memcpy(into, found.data, found.length_bytes)
            else:
                memcpy(into, found.data, found.length_bytes)
        finally:
            ring_release(&self.reader, found.position, found.units)
        return copy

    def wait(self, timeout_s=None):
        """Wait until there is a message (True) or the time is over (False).

        Spins as long as lately paid off, never on a crowded machine, and then sleeps.
        """
        cdef uint64_t timeout_ns, started
        cdef int result
        cdef _Memory memory = self.memory  # stays mapped, whatever a signal handler closes
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
        """The spin of ``wait`` alone, for those who sleep on something else. True: a message."""
        cdef _Memory memory = self.memory  # stays mapped, whatever another thread closes
        cdef uint64_t most_ns = <uint64_t>(most_s * 1e9) if most_s > 0 else 0
        cdef bint found
        self._check()
        with nogil:
            found = ring_peek(&self.reader) or ring_spin_for(&self.reader, &self.spinner, most_ns)
        return found

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
        if ring_peek(&self.reader):
            ring_arrived(&self.spinner, &self.reader, now_ns())

    def expected_s(self):
        """In how many seconds to be awake for the next message (then ``spin``), or None.

        Messages that come at even distances are expected; of others nobody knows.
        """
        cdef uint64_t from_ns, until_ns, now
        self._check()
        if not ring_expected(&self.spinner, &self.reader, &from_ns, &until_ns):
            return None
        now = now_ns()
        return None if now >= from_ns else (from_ns - now) / 1e9

    def close(self):
        """Leave the ring. Refused while a view of a message is held."""
        if self.exports:
            raise BufferError(f"{self.exports} views of messages are still held; release them first")
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


@cython.freelist(64)
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
        raise TypeError("messages come from Reader.read()")

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
        _usable(self.reader.memory)
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
        if reader is None or reader.memory is None or ring_inherited(&reader.memory.ring):
            return
        if reader.thread == ring_thread():
            ring_release(&reader.reader, self.found.position, self.found.units)
            return
        # The reader's thread may be waiting, without the interpreter's lock: it does it itself.
        if reader.released is None:
            reader.released = []
        reader.released.append((self.found.position, self.found.units))
        reader.reader.nudged = True
        doorbell_ring(&reader.doorbell.bell, reader.doorbell.bell.name)

    def __dealloc__(self):
        self._release()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.release()


def records_of(batch):
    """The records of a BATCH message, as views on it, one by one and without a copy."""
    cdef Py_ssize_t at = 0, end
    view = memoryview(batch)
    cdef const uint8_t[::1] seen = view
    end = len(view)
    while at < end:
        at, length = _record_at(&seen[0], at, end)
        yield view[at : at + length]
        at += length


def copies_of(batch):
    """The records of a BATCH message as a list of bytes. Faster than views for small ones."""
    cdef Py_ssize_t at = 0, length
    cdef Py_buffer view
    cdef list records = []
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        while at < view.len:
            at, length = _record_at(<const uint8_t *>view.buf, at, view.len)
            records.append(PyBytes_FromStringAndSize(<const char *>view.buf + at, length))
            at += length
    finally:
        PyBuffer_Release(&view)
    return records


cdef inline (Py_ssize_t, Py_ssize_t) _record_at(const uint8_t *batch, Py_ssize_t at,
                                                Py_ssize_t end) except *:
    """Where the record whose length stands at `at` begins, and how long it is."""
    cdef uint32_t length
    if end - at < 4:
        raise ValueError(f"batch of {end} bytes ends inside the length at {at}")
    memcpy(&length, batch + at, 4)
    at += 4
    if length > end - at:
        raise ValueError(f"record at {at} says {length} bytes; the batch has {end - at} left")
    return at, length


cdef Py_ssize_t _length(part) except -1:
    cdef Py_buffer view
    if type(part) is bytes:
        return PyBytes_GET_SIZE(part)
    PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t length = view.len
    PyBuffer_Release(&view)
    return length


cdef int _write_parts(uint8_t *into, Py_ssize_t total, list parts,
                      Py_ssize_t prefix_bytes) except -1:
    cdef Py_buffer view
    cdef uint32_t length
    cdef Py_ssize_t left = total
    for part in parts:
        PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
        try:
            left -= prefix_bytes + view.len
            if left < 0:
                raise ValueError("a part grew while it was sent")
            if prefix_bytes:
                length = <uint32_t>view.len  # little-endian, as every platform we run on is
                memcpy(into, &length, 4)
                into += 4
            memcpy(into, view.buf, view.len)
            into += view.len
        finally:
            PyBuffer_Release(&view)
    if left != 0:
        raise ValueError("a part shrank while it was sent")
    return 0
