"""A ring, as those see it who take part in it: where it is, what it holds, who may join."""

from libc.stdint cimport uint64_t

from tailrace.transport.ring.doorbell cimport Doorbell
from tailrace.transport.ring.memory cimport Memory, attach, create, usable
from tailrace.transport.ring.native cimport (
    RING_UNIT_BYTES,
    ring, ring_control, ring_counts, ring_max_message_bytes, ring_used,
)

import os

from tailrace.transport.ring.memory import RingError
from tailrace.transport.ring.reader import Reader
from tailrace.transport.ring.writer import Writer

cdef extern from "native/numa.h" nogil:
    int ring_on_node(ring *, unsigned)

_COUNTERS = (
    "sent", "sent_bytes", "received", "received_bytes", "full_waits", "sleeps", "wakes", "skipped",
    "resent", "lost",
)


cdef class Ring:
    """A ring, as its creator or somebody attached to it. Writers and readers are opened from it."""

    cdef Memory memory
    cdef readonly str address
    """Where others attach: valid on this node, for this user, while the creator's ring is open."""

    def __init__(self):
        raise TypeError("use Ring.create(size_bytes) or Ring.attach(address)")

    @staticmethod
    def create(size_bytes, *, bint shared=False, window=64, bint populate=True):
        """A new ring with room for ``size_bytes`` of payload (a power of two, or the next one).

        A message may take up to half of it. ``window`` is how many messages may pass one that is
        still being written before that one is skipped. Unless told to ``populate`` it, which takes
        about a millisecond for each megabyte, its memory comes with the first messages.
        """
        return _ring(create(size_bytes, shared, window, populate))

    @staticmethod
    def attach(str address, *, bint populate=True):
        """The ring of that address, or a RingError that says why it cannot be had."""
        return _ring(attach(address, populate))

    def __reduce__(self):
        return Ring.attach, (self.address,)

    def writer(self, Doorbell doorbell=None):
        """A place to write from, for the calling thread. The doorbell rings when room comes."""
        return Writer(self.memory, doorbell or Doorbell())

    def reader(self, Doorbell doorbell=None):
        """The place to read from, for the calling thread. The doorbell rings when a message comes.

        A ring has one living reader at a time, unless it is shared.
        """
        return Reader(self.memory, doorbell or Doorbell())

    @property
    def size_bytes(self):
        """The room for payload."""
        return usable(self.memory).capacity * RING_UNIT_BYTES

    @property
    def max_message_bytes(self):
        """The longest message it takes."""
        return ring_max_message_bytes(usable(self.memory))

    def settle(self, unsigned numa_node):
        """Have its memory on a NUMA node: the one that its reader runs on is best.

        Holds for memory that has not been used yet. A node that is full leaves it to the system.
        """
        cdef int error = ring_on_node(usable(self.memory), numa_node)
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
        cdef ring *r = usable(self.memory)
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
        totals["fill"] = min(1.0, <double>ring_used(r) / r.capacity)
        return totals

    def close(self):
        """Forget the memory. Members opened from it go on; the creator's address ends with the last
        of them."""
        self.memory = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


cdef Ring _ring(Memory memory):
    cdef Ring self = Ring.__new__(Ring)
    self.memory = memory
    self.address = memory.address
    return self
