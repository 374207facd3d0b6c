# cython: language_level=3
"""What became of a run, as the workers of a node tell each other: a table in shared memory.

A *run* is what a source emitted in one batch, with all that became of it on its way through stateless
operators, up to where it leaves them: into state, into a sink. It may be sent twice, and only one of
the two copies counts. Each worker has a board for the runs of its own sources; every other worker of
the node writes to it. There are no messages, and nobody is woken.

- Who is about to let items of a run out of the stateless stretch *claims* it for their copy. The first
  claim decides for the whole run, whoever makes it: what belongs to the other copy is dropped. So the
  copies need not be alike, nor need their parts meet anywhere. Who was stopped or killed behind a claim
  has the run; nothing is ever taken twice.
- Who has processed items of a run says how many more (or fewer) there are of that copy now, before
  these can be seen by anybody. When there are none left, that copy is *done*.

A slot is used again only when the copy that counts is done. Sequence numbers only grow, and stand in
every word beside what it says: who comes late, for a run that is over, finds a higher one, and changes
nothing. That makes the memory of what was taken as large as what is under way, and no larger.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef extern from *:
    """
    #define BOARD_LOAD(word) __atomic_load_n((word), __ATOMIC_SEQ_CST)
    #define BOARD_STORE(word, value) __atomic_store_n((word), (value), __ATOMIC_SEQ_CST)
    #define BOARD_SWAP(word, known, value) \\
        __atomic_compare_exchange_n((word), (known), (value), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
    """
    int64_t load "BOARD_LOAD"(int64_t *word) noexcept
    void store "BOARD_STORE"(int64_t *word, int64_t value) noexcept
    bint swap "BOARD_SWAP"(int64_t *word, int64_t *known, int64_t value) noexcept

cdef enum:
    COUNT_BITS = 20

SLOT_BYTES = sizeof(Slot)


def origin_of(int64_t sequence, int rank, bint copy=False):
    """The number that the items of a run carry: whose it is, which one, and which copy of it."""
    return sequence << 17 | <int64_t>copy << 16 | rank


def is_copy(int64_t origin):
    """Whether items of this origin are of the copy of a run."""
    return bool(origin >> 16 & 1)


cdef class Boards:
    """The boards that one worker can see: its own, and those of others when it first needs them.

    `attach(rank)` gives the memory of a worker's board, which is as many slots as fit: a power of two.
    """

    def __cinit__(self):
        self.tables = NULL

    def __init__(self, int rank, attach):
        self.rank = rank
        self.attach = attach
        self.held = []

    def __dealloc__(self):
        free(self.tables)

    cdef Slot *slot(self, int64_t origin) except NULL:
        cdef int rank = origin & 0xFFFF
        if rank >= self.known or self.tables[rank].slots is NULL:
            self.find(rank)
        return &self.tables[rank].slots[origin >> 17 & self.tables[rank].mask]

    def find(self, int rank):
        """Have the board of a worker now: it can be had while that worker lives, and stays then."""
        cdef Table *tables
        if rank < self.known and self.tables[rank].slots is not NULL:
            return
        cdef _Memory memory = _Memory(self.attach(rank))
        if rank >= self.known:
            tables = <Table *>calloc(rank + 1, sizeof(Table))
            if tables is NULL:
                raise MemoryError()
            if self.known:
                memcpy(tables, self.tables, self.known * sizeof(Table))
            free(self.tables)
            self.tables, self.known = tables, rank + 1
        self.tables[rank] = memory.table
        self.held.append(memory)

    def close(self):
        """Let go of all boards; nothing is tracked any more."""
        cdef int rank
        for rank in range(self.known):
            self.tables[rank].slots = NULL
        self.held = []

    def forget(self, int rank):
        """Another worker has that rank now, with another board."""
        if rank < self.known:
            self.tables[rank].slots = NULL

    # ---- those who process ----

    cdef bint claim(self, int64_t origin) except -1:
        """Whether what is of this origin counts; from now on its run has been decided."""
        cdef Slot *slot = self.slot(origin)
        cdef int64_t sequence = origin >> 17, copy = origin >> 16 & 1
        cdef int64_t known = load(&slot.winner)  # partner: the swap of whoever claims it, too
        while known >> 1 < sequence:
            if swap(&slot.winner, &known, sequence << 1 | copy):
                return True
        return known == (sequence << 1 | copy)

    cdef int move(self, int64_t origin, int64_t items, int to, int64_t now_ns) except -1:
        """There are so many more items of this origin now; some are on their way to a worker."""
        cdef Slot *slot = self.slot(origin)
        cdef int64_t sequence = origin >> 17, copy = origin >> 16 & 1, known
        if not copy and to >= 0:
            store(&slot.where, sequence << 16 | to)
        if not items:
            return 0
        known = load(&slot.pending[copy])  # partner: the swaps of others who have items of it
        while known >> COUNT_BITS == sequence:
            if known + items == sequence << COUNT_BITS:
                slot.done_ns[copy] = now_ns  # nobody else has items: seen with the swap below
            if swap(&slot.pending[copy], &known, known + items):
                break
        return 0

    cdef int avoided(self, int64_t origin) except -2:
        """The worker that this one stays away from on its way; -1: none."""
        cdef int64_t known
        if not origin >> 16 & 1:
            return -1
        known = load(&self.slot(origin).avoid)
        return known & 0xFFFF if known >> 16 == origin >> 17 else -1

    # ---- the source ----

    @property
    def slots(self):
        """How many runs of ours can be under way at a time."""
        self.slot(self.rank)
        return self.tables[self.rank].mask + 1

    def open(self, int64_t origin, int64_t items, int to, int64_t now_ns):
        """A copy of a run of ours is about to be sent, in so many items."""
        cdef Slot *slot = self.slot(origin)
        cdef int64_t sequence = origin >> 17, copy = origin >> 16 & 1
        if not 0 <= items < 1 << COUNT_BITS:
            raise ValueError(f"a run of {items} items; it may have {(1 << COUNT_BITS) - 1}")
        if not copy:
            store(&slot.where, sequence << 16 | to)
        if not items:
            slot.done_ns[copy] = now_ns
        store(&slot.pending[copy], sequence << COUNT_BITS | items)

    def around(self, int64_t origin, int worker):
        """Have the copy of a run stay away from a worker, as long as there are others."""
        store(&self.slot(origin).avoid, (origin >> 17) << 16 | worker)

    def where(self, int64_t origin):
        """The worker that the original of a run was last sent to."""
        return load(&self.slot(origin).where) & 0xFFFF

    def done_ns(self, int64_t origin):
        """When the last item of this origin was processed, or dropped; None: there are some left."""
        cdef Slot *slot = self.slot(origin)
        cdef int64_t copy = origin >> 16 & 1
        if load(&slot.pending[copy]) != (origin >> 17) << COUNT_BITS:
            return None
        return slot.done_ns[copy]

    def over_ns(self, int64_t origin):
        """When the copy that counts was done; None: it is not.

        A copy that is done and has let nothing out counts as well as any. That is claimed, too: the
        other one may be on its way out.
        """
        cdef Slot *slot = self.slot(origin)
        cdef int64_t sequence = origin >> 17, copy, known = load(&slot.winner)
        if known >> 1 != sequence:
            for copy in range(2):
                if load(&slot.pending[copy]) == sequence << COUNT_BITS:
                    if self.claim(sequence << 17 | copy << 16 | (origin & 0xFFFF)):
                        return slot.done_ns[copy]
            known = load(&slot.winner)
            if known >> 1 != sequence:
                return None
        copy = known & 1
        if load(&slot.pending[copy]) != sequence << COUNT_BITS:
            return None
        return slot.done_ns[copy]


cdef class _Memory:
    """A board's memory, held for as long as somebody may look at it."""

    cdef Py_buffer view
    cdef Table table

    def __cinit__(self, memory):
        PyObject_GetBuffer(memory, &self.view, PyBUF_WRITABLE)
        cdef Py_ssize_t count = self.view.len // sizeof(Slot)
        if count < 1 or count & (count - 1):
            raise ValueError(f"a board of {count} slots ({self.view.len} bytes); take a power of two")
        self.table.slots = <Slot *>self.view.buf
        self.table.mask = count - 1

    def __dealloc__(self):
        PyBuffer_Release(&self.view)
