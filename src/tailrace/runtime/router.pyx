# cython: language_level=3
"""From an operator's output to the lanes of a stream, by its grouping: what runs for every record."""

from array import array
from pickle import dumps, loads

from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from tailrace.graph.model import Rule
from tailrace.routing.hashing import stable_hash
from tailrace.runtime.markers import BEGINNING

from tailrace.routing.sketch cimport PairSketch
from tailrace.runtime.exchange cimport Exchange, Lane, Stamp
from tailrace.runtime.keypairs cimport PairCounter
from tailrace.transport.texts cimport one_object

cdef enum:
    REMEMBERED_KEYS = 1 << 16
    LEAST_SHARE = 4  # of a batch, for one receiver of a shuffle
    MANY = 16  # receivers: more than there are workers, mostly
    LEAST_SHARE_OF_MANY = 16
    PACE_NS = 1000000  # about a round: so long a receiver may wait for its turn
    PACE_SHIFT = 4  # it has to be held for some rounds: a burst is shared out
    CANDIDATES = 8  # for a batch of few shares

cdef enum Way:
    ONE, SPREAD, ALL, BY_KEY, BY_PARTIAL_KEY, BY_FUNCTION

_WAYS = {
    Rule.FORWARD: ONE,
    Rule.GLOBAL: ONE,
    Rule.SHUFFLE: SPREAD,
    Rule.LOCAL_OR_SHUFFLE: SPREAD,
    Rule.ALL: ALL,
    Rule.KEY: BY_KEY,
    Rule.PARTIAL_KEY: BY_PARTIAL_KEY,
    Rule.CUSTOM: BY_FUNCTION,
}


cdef class Router:
    """Spreads what one instance puts out over the lanes of a stream's exchange.

    A record whose key (or receiver) cannot be told is rejected: it goes to the first receiver as such,
    with the error, and there the policy of the operator that reads the stream says what follows.
    """

    cdef readonly Exchange exchange
    cdef readonly int index
    cdef readonly str output
    cdef public int64_t watermark
    cdef public bint ended
    cdef Stamp stamp
    cdef set full
    cdef object function, routes
    cdef bint local
    cdef int rank
    cdef Way way
    cdef list lanes
    cdef dict targets
    cdef int64_t serial, flushes, last_ns
    cdef Py_ssize_t next, receivers
    cdef int64_t paced_ns, paced_records, pace  # since when; how many since; usual in PACE_NS, << PACE_SHIFT
    cdef int64_t *counts
    cdef PairCounter counter
    cdef PairSketch sketch

    def __cinit__(self):
        self.counts = NULL

    def __init__(self, Exchange exchange not None, stream, int index, int rank,
                 Stamp stamp not None, set full not None, routes=None):
        self.exchange = exchange
        self.index = index
        self.output = stream.output
        self.watermark = BEGINNING
        self.stamp = stamp
        self.full = full
        self.function = stream.grouping.function
        self.routes = routes
        self.local = stream.grouping.rule is Rule.LOCAL_OR_SHUFFLE
        self.rank = rank
        self.way = _WAYS[stream.grouping.rule]
        self.targets = exchange.targets
        self.next = index  # shuffles of different senders start at different receivers
        exchange.senders.append(self)
        self.relaid()

    def __dealloc__(self):
        free(self.counts)

    def relaid(self):
        """The exchange has other lanes now."""
        cdef Py_ssize_t count = PyList_GET_SIZE(self.exchange.lanes), i
        cdef int64_t *counts = <int64_t *>calloc(max(count, 1), sizeof(int64_t))
        if counts is NULL:
            raise MemoryError()
        for i in range(min(count, self.receivers)):
            counts[i] = self.counts[i]
        free(self.counts)
        self.counts = counts
        self.receivers = count
        here = [lane for lane in self.exchange.lanes if lane.peer == self.rank] if self.local else []
        self.lanes = here or self.exchange.lanes

    def reroute(self, routes):
        """Keys have other owners from now on."""
        self.routes = routes
        self.targets.clear()

    def count(self, PairCounter counter, PairSketch sketch):
        """Have the sketch count the key that `counter` sees with those that are sent by; or nobody."""
        self.counter, self.sketch = counter, sketch

    def sent_to(self):
        """How many records have gone to each receiver."""
        cdef Py_ssize_t i
        return array("q", [self.counts[i] for i in range(self.receivers)])

    def mark(self, marker):
        """Put a marker behind all that was put out."""
        self.exchange.mark(self, marker)

    def put(self, list records not None):
        """Spread the records; the list belongs to the router from now on."""
        if not PyList_GET_SIZE(records):
            return
        if not PyList_GET_SIZE(self.lanes):
            raise RuntimeError(f"{self.exchange.label} leads nowhere from instance {self.index}")
        if self.flushes != self.exchange.flushes:
            self.flushes = self.exchange.flushes
        elif self.stamp.emitted_ns < self.last_ns:
            self.exchange.segment += 1  # what went before stays before
        self.last_ns = self.stamp.emitted_ns
        self.serial += 1
        self.serial |= <int64_t>self.index << 40  # no two senders of an exchange have the same
        if self.way == BY_KEY:
            if self.counter is not None and self.counter.open:
                self._count(records)
            self._by_key(records)
        elif self.way == ONE:
            self._to(<Lane>self.lanes[0], records)
        elif self.way == SPREAD:
            if self.stamp.avoid < 0 or not self._around(records):
                self._spread(records)
        elif self.way == ALL:
            for lane in self.lanes:
                self._to(<Lane>lane, records.copy())
        elif self.way == BY_PARTIAL_KEY:
            self._by_partial_key(records)
        else:
            self._by_function(records)

    cdef int _to(self, Lane lane, list records) except -1:
        self.counts[lane.index] += PyList_GET_SIZE(records)
        lane.put_list(records, self.stamp)
        if lane.records >= lane.most_records:
            lane.block(self.full)
        return 0

    cdef inline int _one(self, Lane lane, record) except -1:
        self.counts[lane.index] += 1
        lane.put_one(record, self.stamp, self.serial)
        if lane.records >= lane.most_records:
            lane.block(self.full)
        return 0

    cdef int _spread(self, list records) except -1:
        """In equal shares, of no less than some records each: small batches stay whole.

        Where not all get something, it starts with the one of the next few that has got least so far.
        What is small depends on how many records come: if as many again follow at once, whoever got
        none has not long to wait. Cut at every hop, they would all travel alone in the end.
        """
        cdef Py_ssize_t count = PyList_GET_SIZE(self.lanes), size = PyList_GET_SIZE(records)
        cdef Py_ssize_t least_share = LEAST_SHARE if count <= MANY else LEAST_SHARE_OF_MANY
        cdef Py_ssize_t shares, i, start = 0, end, least
        least_share = max(least_share, self._usual(size))
        shares = min(count, max(size // least_share, 1))
        least = self.next = self.next % count
        if shares < count:
            for i in range(1, min(count, CANDIDATES)):
                if self._got((self.next + i) % count) < self._got(least):
                    least = (self.next + i) % count
            self.next = least
        if shares == 1:
            self.next += 1
            return self._to(<Lane>self.lanes[least], records)
        for i in range(shares):
            end = start + (size - start) // (shares - i)
            self._to(<Lane>self.lanes[(self.next + i) % count], records[start:end])
            start = end
        self.next += shares
        return 0

    cdef bint _around(self, list records) except -1:
        """Whole to the next receiver that is not in the worker to stay away from, if there is one."""
        cdef list lanes = self.exchange.lanes
        cdef Py_ssize_t count = PyList_GET_SIZE(lanes), i
        cdef Lane lane
        for i in range(count):
            lane = lanes[(self.next + i) % count]
            if lane.peer != self.stamp.avoid:
                self.next += i + 1
                self._to(lane, records)
                return True
        return False

    cdef Py_ssize_t _usual(self, Py_ssize_t size):
        """About how many records come in PACE_NS, these included."""
        cdef int64_t since_ns = self.stamp.now_ns - self.paced_ns
        self.paced_records += size
        if since_ns >= PACE_NS:
            self.pace += self.paced_records * PACE_NS // since_ns - (self.pace >> PACE_SHIFT)
            self.paced_ns = self.stamp.now_ns
            self.paced_records = 0
        return self.pace >> PACE_SHIFT

    cdef int64_t _got(self, Py_ssize_t place) except -1:
        return self.counts[(<Lane>self.lanes[place]).index]

    cdef int _by_key(self, list records) except -1:
        cdef PyObject *known
        cdef Lane lane
        key_of, targets = self.function, self.targets
        for record in records:
            try:
                if key_of is None:
                    key = record = one_object(record)
                else:
                    key = key_of(record)
                known = PyDict_GetItemWithError(targets, key)
                lane = self._place(key) if known is NULL else <Lane>known
            except Exception as error:
                self._reject(record, error)
                continue
            self._one(lane, record)
        return 0

    cdef int _count(self, list records) except -1:
        """A record without a key counts for nothing; what else becomes of it is decided elsewhere."""
        for record in records:
            try:
                key = record if self.function is None else self.function(record)
                self.sketch.add(self.counter.key_in, key)
            except Exception:
                continue
        return 0

    cdef Lane _place(self, key):
        cdef Py_ssize_t owner = self.routes.owner(key)
        if not 0 <= owner < PyList_GET_SIZE(self.lanes):
            raise IndexError(f"{key!r} is routed to instance {owner} of {PyList_GET_SIZE(self.lanes)}")
        cdef Lane lane = self.lanes[owner]
        self._remember(key, lane)
        return lane

    cdef int _by_partial_key(self, list records) except -1:
        """Each key has two receivers; each record goes to the one that has got fewer so far."""
        cdef PyObject *known
        cdef Lane first, second
        key_of, targets = self.function, self.targets
        for record in records:
            try:
                key = record if key_of is None else key_of(record)
                known = PyDict_GetItemWithError(targets, key)
                choices = self._two(key) if known is NULL else <object>known
            except Exception as error:
                self._reject(record, error)
                continue
            first, second = choices
            self._one(second if self.counts[second.index] < self.counts[first.index] else first, record)
        return 0

    cdef tuple _two(self, key):
        cdef Py_ssize_t count = PyList_GET_SIZE(self.lanes), first, second
        hashed = stable_hash(key)
        first = second = hashed % count
        if count > 1:
            second = stable_hash((hashed, 1)) % (count - 1)
            second += second >= first
        choices = (self.lanes[first], self.lanes[second])
        self._remember(key, choices)
        return choices

    cdef int _remember(self, key, target) except -1:
        if PyDict_Size(self.targets) >= REMEMBERED_KEYS:
            self.targets.clear()
        PyDict_SetItem(self.targets, key, target)
        return 0

    cdef int _by_function(self, list records) except -1:
        cdef Py_ssize_t count = PyList_GET_SIZE(self.lanes), chosen
        for record in records:
            try:
                index = self.function(record, count)
                if not 0 <= index < count:
                    raise ValueError(
                        f"the grouping function gave {index!r} for {record!r}; there are {count}"
                        " instances"
                    )
                chosen = index
            except Exception as error:
                self._reject(record, error)
                continue
            self._one(<Lane>self.lanes[chosen], record)
        return 0

    cdef int _reject(self, record, error) except -1:
        cdef Lane lane = self.lanes[0]
        error.__traceback__ = None  # it holds on to everything here, and does not travel
        try:
            loads(dumps(error))
        except Exception:
            error = RuntimeError(repr(error))
        self.counts[lane.index] += 1
        lane.reject(record, error, self.stamp)
        if lane.records >= lane.most_records:
            lane.block(self.full)
        return 0
