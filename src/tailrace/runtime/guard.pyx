# cython: language_level=3
"""The guard around a step: counts, times and handles the errors of what runs for every batch."""

from libc.stdint cimport int64_t

from tailrace.runtime.histogram import Histogram
from tailrace.runtime.step import OperatorFailed

from tailrace.runtime.exchange cimport Stamp
from tailrace.runtime.hot cimport note

cdef extern from "Python.h":
    Py_ssize_t PyObject_LengthHint(object, Py_ssize_t) except -1
    Py_ssize_t PyList_GET_SIZE(object)


cdef class Counts:
    """What one operator copy has done; the numbers of the audit."""

    cdef public int64_t records_in, skipped, dead, late, execute_ns
    cdef readonly object execute  # a histogram: per record, each batch with its mean

    def __init__(self):
        self.execute = Histogram()

    def add(self, Counts other not None):
        """What another copy has done, too."""
        self.records_in += other.records_in
        self.skipped += other.skipped
        self.dead += other.dead
        self.late += other.late
        self.execute_ns += other.execute_ns
        self.execute.merge(other.execute)


cdef class Timing:
    """Time spent in the steps called by the one that runs now; makes execute times exclusive."""

    cdef public int64_t inner_ns


cdef bint _left(iterator, list records) except -1:
    """Whether a list's iterator has not said "end" yet, be it that it is behind the last record.

    `map` and its like take a StopIteration out of the user's function for the end of the input.
    Only an iterator that has not said "end" itself sees its list grow.
    """
    cdef Py_ssize_t unseen
    records.append(None)
    unseen = PyObject_LengthHint(iterator, 0)
    records.pop()
    return unseen > 0


def guard(name, step, port, fail, Counts counts not None, Timing timing not None, clock_ns):
    """A step's `process` as something to hand lists to: counted, timed, its errors handled.

    A step that asks for keys gets those that come with the records; where none do, its key function
    gives them here. When a record raises, `fail(record, error)` does what the operator's policy says,
    and the step is called again with the rest. What is no record's fault is raised as `OperatorFailed`.
    """
    times = counts.execute.counts
    process = step.process
    cdef bint pairs = port in step.key_of
    key_of = step.key_of.get(port)

    def put(list records not None, list keys=None):
        cdef Py_ssize_t count = PyList_GET_SIZE(records), done, blamed = 0
        cdef int64_t outer_ns = timing.inner_ns, started_ns, elapsed_ns, own_ns
        counts.records_in += count
        timing.inner_ns = 0
        started_ns = clock_ns()
        taken = iterator = iter(records)
        if pairs:
            # Records first: so their iterator has passed the one whose key cannot be told.
            if keys is not None:
                taken = zip(iterator, keys)
            else:
                taken = zip(iterator, records if key_of is None else map(key_of, records))
        while True:
            try:
                process(taken, port)
                if not _left(iterator, records):
                    break
                raise RuntimeError(
                    "it left records unprocessed: its code raised StopIteration (a next() without a"
                    " default, perhaps), or returned early"
                )
            except OperatorFailed:
                raise  # by a policy, or of an operator behind this one
            except Exception as error:
                # Of the list as it is now: others may hold it, and indices are not checked here.
                done = PyList_GET_SIZE(records) - PyObject_LengthHint(iterator, 0)
                if done <= blamed:  # no record's fault: going on would go round in circles
                    raise OperatorFailed(name, None, error, "process") from error
                fail(records[done - 1], error)
                blamed = done
        elapsed_ns = clock_ns() - started_ns
        own_ns = elapsed_ns - timing.inner_ns
        counts.execute_ns += own_ns
        if count:
            note(times, own_ns // count, count)
        timing.inner_ns = outer_ns + elapsed_ns

    return put


def measured(put, latencies, Stamp stamp not None, clock_ns):
    """`put`, and behind it the latency of its records, from when their source emitted them."""

    def put_and_note(list records not None, list keys=None):
        cdef Py_ssize_t count = PyList_GET_SIZE(records)
        put(records, keys)
        note(latencies, <int64_t>clock_ns() - stamp.emitted_ns, count)

    return put_and_note
