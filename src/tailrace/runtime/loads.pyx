# cython: language_level=3
"""How much work the workers of a node have been given, as all of them know it at any moment.

Credits tell a sender what became of its own records, and, some time later, what others have there.
With several senders that is old news: all of them see the same receiver idle, and all give it a
record. So each worker has a row of numbers in shared memory, how much work it has given to each
other one that is not done yet, over all streams that are dealt by load. Only it writes there, as
soon as it has decided; whoever deals adds up a column. There are no messages, and nobody is woken.

These are hints: whoever dies takes its row along, whoever begins anew begins with zeros, and a
number that is off for a moment costs one choice that is not the best.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef extern from *:
    """
    #define LOADS_READ(cell) __atomic_load_n((cell), __ATOMIC_RELAXED)
    #define LOADS_WRITE(cell, value) __atomic_store_n((cell), (value), __ATOMIC_RELAXED)
    """
    int64_t read "LOADS_READ"(int64_t *cell) noexcept
    void write "LOADS_WRITE"(int64_t *cell, int64_t value) noexcept

cdef enum:
    WORKERS = 1024  # those of higher ranks are not told of; what is sent to them counts as nothing

LOADS_BYTES = WORKERS * sizeof(int64_t)


cdef class Loads:
    """The rows that one worker can see. `attach(rank)` gives the memory of a worker's row, or None."""

    def __cinit__(self):
        self.tables = NULL

    def __init__(self, int rank, attach):
        self.rank = rank
        self.attach = attach
        self.held = {rank: _Row(attach(rank))}
        self.unseen = []
        self.see()
        self.own = (<_Row>self.held[rank]).cells

    def __dealloc__(self):
        free(self.tables)

    def find(self, int rank):
        """Count what that worker has given to others, too, from when anybody asks on."""
        self.forget(rank)
        if rank != self.rank:
            self.unseen.append(rank)

    def forget(self, int rank):
        """That worker is no more; another one may get its rank."""
        if rank in self.unseen:
            self.unseen.remove(rank)
        if rank != self.rank and self.held.pop(rank, None) is not None:
            self.see()

    cdef int see(self) except -1:
        """Look at the rows of all that are there."""
        cdef int64_t **tables
        cdef int known = 0
        while self.unseen:
            rank = self.unseen.pop()
            memory = self.attach(rank)
            if memory is not None:
                self.held[rank] = _Row(memory)
        tables = <int64_t **>realloc(self.tables, (len(self.held) + 1) * sizeof(int64_t *))
        if tables is NULL:
            raise MemoryError()
        self.tables = tables
        for row in self.held.values():
            tables[known] = (<_Row>row).cells
            known += 1
        self.known = known
        return 0

    def reset(self):
        """Nothing that this worker has given to others is under way any more."""
        memset(self.own, 0, WORKERS * sizeof(int64_t))

    def close(self):
        """Neither count nor be counted any more."""
        self.known = 0
        self.own = NULL
        self.held, self.unseen = {}, []

    def note(self, int worker, int64_t work_ns):
        """So much more work is there for a worker, or less."""
        self.add(worker, work_ns)

    def at(self, int worker):
        """How much work all that are known have given to a worker."""
        return self.of(worker)

    cdef int add(self, int worker, int64_t work_ns) except -1:
        if self.own is not NULL and 0 <= worker < WORKERS:
            write(&self.own[worker], self.own[worker] + work_ns)  # partner: the reads in `of`
        return 0

    cdef int64_t of(self, int worker) except -1:
        cdef int64_t work_ns = 0
        cdef int i
        if self.unseen:
            self.see()
        if 0 <= worker < WORKERS:
            for i in range(self.known):
                work_ns += read(&self.tables[i][worker])  # partner: the write in `add`
        return max(work_ns, 0)


cdef class _Row:
    """A row's memory, held for as long as somebody may look at it."""

    cdef Py_buffer view
    cdef int64_t *cells

    def __cinit__(self, memory):
        PyObject_GetBuffer(memory, &self.view, PyBUF_WRITABLE)
        if self.view.len < <Py_ssize_t>(WORKERS * sizeof(int64_t)):
            size = self.view.len
            PyBuffer_Release(&self.view)
            raise ValueError(f"a row of {size} bytes; it takes {LOADS_BYTES}")
        self.cells = <int64_t *>self.view.buf

    def __dealloc__(self):
        PyBuffer_Release(&self.view)
