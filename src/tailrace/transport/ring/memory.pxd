from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from tailrace.transport.ring.native cimport ring, ring_thread


cdef class Memory:
    cdef ring ring
    cdef str address
    cdef bint keep  # a lifeline of another thread is still in it
    cdef const unsigned *forks  # of this process, as memory.pyx counts them


cdef Memory create(size_bytes, bint shared, window, bint populate)
cdef Memory attach(str address, bint populate)
cdef ring *usable(Memory memory) except NULL
cdef int refuse_thread() except -1
cdef unsigned forks() noexcept


cdef inline bint inherited(Memory memory) noexcept:
    return memory.ring.born != memory.forks[0]


cdef inline ring *mine(Memory memory, uint64_t thread) except NULL:
    """`usable`, for members: by the thread that opened them."""
    if memory is None or inherited(memory):
        return usable(memory)
    if thread != ring_thread():
        refuse_thread()
    return &memory.ring


# A copy longer than this lets other threads of the process run meanwhile.
cdef enum:
    LONG_COPY_BYTES = 65536


cdef inline void copy(void *into, const void *data, size_t length) noexcept:
    if length > LONG_COPY_BYTES:
        with nogil:
            memcpy(into, data, length)
    else:
        memcpy(into, data, length)
