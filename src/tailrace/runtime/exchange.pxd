from libc.stdint cimport int64_t

from tailrace.runtime.loads cimport Loads


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
    cdef readonly int64_t records, sent, base, messages, bytes_sent, credit_used, bytes_used
    cdef readonly int64_t most_records, takes, window
    cdef readonly bint touched
    cdef list tail, tail_keys
    cdef int64_t serial, version, told_ns, segment
    cdef Py_ssize_t tail_at, segment_start
    cdef bint told_idle
    cdef object sizes
    cdef int64_t newest, newest_bytes  # the last of them, which grows
    cdef list blocked
    # What is known of the receiver, for who deals by that; times are kept only while somebody does.
    cdef readonly bint here, near
    cdef readonly int64_t service_ns, spread_ns, way_ns, turn_ns, others, heard_ns, under_way_ns
    cdef int64_t measured_ns, probe_ns, probe_sent, probe_records, probes
    cdef int64_t published_ns  # how much work all of a node know of that is under way here

    cdef int open_tail(self, Stamp stamp, int64_t serial) except -1
    cdef int put_one(self, record, key, Stamp stamp, int64_t serial) except -1
    cdef int put_list(self, list records, Stamp stamp) except -1
    cdef int block(self, set full) except -1
    cdef int measure(self, int64_t now_ns) except -1
    cdef int publish(self) except -1


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
    cdef readonly bint keyed  # records go with their keys
    cdef readonly bint dealing  # not everybody in turn
    cdef readonly str mode
    cdef readonly int64_t queued  # records in the queue that all receivers share
    cdef object queue, late, policy, clock_ns, is_near
    cdef Loads loads
    cdef int rank
    cdef bint stays
    cdef list waiters
    cdef int64_t dealt_ns
    cdef Stamp dealt

    cdef int narrow(self) except -1
    cdef int sync(self, Lane lane) except -1
    cdef int touch(self, Lane lane) except -1
    cdef int64_t share(self) except -1
    cdef int choose(self, int64_t now_ns) except -1
    cdef int enqueue(self, sender, list records, Stamp stamp, set full) except -1
    cdef int64_t most_queued(self) except -1
    cdef int deal(self, int64_t now_ns) except -1
    cdef int hand(self, Lane lane, int64_t most, int64_t now_ns) except -1
