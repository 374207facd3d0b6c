from libc.stdint cimport int64_t


cdef enum:
    AGE_SHIFT = 5  # as in histograms: a thirty-second of its age is within a latency's bucket


cdef inline bint near(int64_t one_ns, int64_t other_ns, int64_t now_ns) noexcept:
    """Whether taking one emission time for the other changes no latency by more than a bucket."""
    cdef int64_t younger_ns = max(one_ns, other_ns), apart = younger_ns - min(one_ns, other_ns)
    return not apart or apart <= (now_ns - younger_ns) >> AGE_SHIFT


cdef class Stamp:
    cdef public int64_t emitted_ns, origin, now_ns
    cdef public int64_t produced  # items of an origin that were put out since somebody set it back
    cdef public int sent_to, avoid  # the worker of the last of them; the one to stay away from, or -1


cdef class Lane:
    cdef readonly int64_t gate
    cdef readonly int peer, index
    cdef readonly Exchange exchange
    cdef public list items
    cdef readonly int64_t records, sent, messages, bytes_sent, credit_used, bytes_used
    cdef readonly int64_t most_records, takes, window
    cdef readonly bint touched
    cdef list tail
    cdef int64_t serial, version, told_ns, segment
    cdef Py_ssize_t tail_at, segment_start
    cdef bint told_idle
    cdef object sizes
    cdef list blocked

    cdef int open_tail(self, Stamp stamp, int64_t serial) except -1
    cdef int put_one(self, record, Stamp stamp, int64_t serial) except -1
    cdef int put_list(self, list records, Stamp stamp) except -1
    cdef int block(self, set full) except -1


cdef class Exchange:
    cdef readonly int stream
    cdef readonly str label
    cdef public object fail
    cdef readonly list lanes
    cdef public list senders
    cdef readonly list touched
    cdef dict targets
    cdef readonly int64_t watermark
    cdef readonly bint idle, pending
    cdef public int64_t flushes
    cdef int64_t emitted_ns, version, announced_ns, segment
    cdef object end
    cdef readonly int64_t room
    cdef int64_t window_records, first_window, window_bytes, gathered_records

    cdef int narrow(self) except -1
    cdef int sync(self, Lane lane) except -1
    cdef int touch(self, Lane lane) except -1
