from libc.stdint cimport int64_t


cdef struct Slot:
    int64_t winner  # sequence << 1 | copy: of the newest run that was taken, which copy was
    int64_t pending[2]  # sequence << COUNT_BITS | items under way, of the original and of the copy
    int64_t done_ns[2]  # when that came to nothing
    int64_t where  # sequence << 16 | the worker that the original was last sent to
    int64_t avoid  # sequence << 16 | the worker that the copy stays away from
    int64_t unused


cdef struct Table:
    Slot *slots
    int64_t mask  # one less than there are slots


cdef class Boards:
    cdef readonly int rank
    cdef public int64_t sequence  # of the newest run of ours, ever
    cdef object attach
    cdef list held
    cdef Table *tables
    cdef int known

    cdef Slot *slot(self, int64_t origin) except NULL
    cdef bint claim(self, int64_t origin) except -1
    cdef int move(self, int64_t origin, int64_t items, int to, int64_t now_ns) except -1
    cdef int avoided(self, int64_t origin) except -2
