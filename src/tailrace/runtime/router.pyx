# cython: language_level=3
"""From an operator's output to the lanes of a stream, by its grouping: what runs for every record."""

from array import array
from pickle import dumps, loads

from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from tailrace.graph.model import Rule
from tailrace.routing.hashing import key_error, stable_hash
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
    CANDIDATES = 8  # for a batch of few shares, and for a record of a hot key
    SAMPLES = 256  # of partial keys, before it is looked which are hot
    SAMPLED_SHIFT = 28  # of 32 bits: one record in 16 is one
    HOT_BYTES = 1 << 15

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

    What a key function has given goes beside its record, so that nobody has to call it again.

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
    cdef object function, routes, fail
    cdef bint local
    cdef int rank
    cdef Way way
    cdef list lanes
    cdef dict targets
    cdef int64_t serial, flushes, last_ns
    cdef Py_ssize_t next, receivers
    cdef int64_t paced_ns, paced_records, pace  # since when; how many since; usual in PACE_NS, << PACE_SHIFT
    cdef int64_t *counts
    cdef int64_t *counted_out  # of those, what does not matter for who has got least so far
    cdef PairCounter counter
    cdef PairSketch sketch
    cdef PairSketch heavy  # of partial keys, a sample
    cdef uint32_t dice

    def __cinit__(self):
        self.counts = self.counted_out = NULL

    def __init__(self, Exchange exchange not None, stream, int index, int rank,
                 Stamp stamp not None, set full not None, routes=None, bint joins=True):
        """Unless it `joins` at once, it is no sender of the exchange before `join`."""
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
        if joins:
            self.join()

    def __dealloc__(self):
        free(self.counts)
        free(self.counted_out)

    def join(self):
        """Be one of the exchange's senders from now on."""
        self.exchange.senders.append(self)
        if self.fail is not None:
            self.exchange.fail = self.fail
        self.relaid()

    def fails_by(self, fail):
        """What becomes of its records that turn out to be unsendable."""
        self.fail = fail
        if self in self.exchange.senders:
            self.exchange.fail = fail

    def relaid(self):
        """The exchange has other lanes now."""
        cdef Py_ssize_t count = PyList_GET_SIZE(self.exchange.lanes), i
        cdef int64_t *counts = <int64_t *>calloc(max(count, 1), sizeof(int64_t))
        cdef int64_t *counted_out = <int64_t *>calloc(max(count, 1), sizeof(int64_t))
        if counts is NULL or counted_out is NULL:
            free(counts)
            free(counted_out)
            raise MemoryError()
        for i in range(min(count, self.receivers)):
            counts[i] = self.counts[i]
        free(self.counts)
        free(self.counted_out)
        self.counts = counts
        self.counted_out = counted_out
        self.receivers = count
        self.start_even()
        here = [lane for lane in self.exchange.lanes if lane.peer == self.rank] if self.local else []
        self.lanes = here or self.exchange.lanes

    def start_even(self):
        """Who has got more than others by now need not wait until they have as much."""
        cdef Py_ssize_t i
        for i in range(self.receivers):
            self.counted_out[i] = self.counts[i]

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
            self._by_key(records)
        elif self.way == ONE:
            self._to(<Lane>self.lanes[0], records)
        elif self.way == SPREAD:
            if self.stamp.avoid >= 0 and self._around(records):
                pass
            elif self.exchange.dealing:
                self._deal(records)
            else:
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

    cdef inline int _one(self, Lane lane, record, key) except -1:
        self.counts[lane.index] += 1
        lane.put_one(record, key, self.stamp, self.serial)
        if lane.records >= lane.most_records:
            lane.block(self.full)
        return 0

    def dealt(self, Py_ssize_t index, int64_t records):
        """So many of the records that have waited in the exchange go to that receiver."""
        self.counts[index] += records

    cdef int _deal(self, list records) except -1:
        """Each share of a batch to who is chosen for it; or to whoever is free, when somebody is."""
        cdef Py_ssize_t size = PyList_GET_SIZE(records), share, start = 0, end
        cdef Exchange exchange = self.exchange
        if exchange.queue is not None:
            return exchange.enqueue(self, records, self.stamp, self.full)
        share = exchange.share() or max(<Py_ssize_t>LEAST_SHARE, self._usual(size))
        cdef Lane lane
        while start < size:
            end = min(start + share, size)
            lane = <Lane>exchange.lanes[exchange.choose(self.stamp.now_ns)]
            self._to(lane, records if share >= size else records[start:end])
            lane.publish()
            start = end
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
        cdef int index = (<Lane>self.lanes[place]).index
        return self.counts[index] - self.counted_out[index]

    cdef int _by_key(self, list records) except -1:
        cdef PyObject *known
        cdef Lane lane
        cdef bint counts = self.counter is not None and self.counter.open
        key_of, targets = self.function, self.targets
        for record in records:
            if key_of is None:
                key = record = one_object(record)
            else:
                try:
                    key = key_of(record)
                except Exception as error:
                    self._reject(record, error)
                    continue
            try:
                known = PyDict_GetItemWithError(targets, key)
                lane = self._place(key) if known is NULL else <Lane>known
            except Exception as error:
                self._reject(record, key_error(key, error))
                continue
            if counts:
                self.sketch.add(self.counter.key_in, key)
            self._one(lane, record, key)
        return 0

    cdef Lane _place(self, key):
        cdef Py_ssize_t owner = self.routes.owner(key)
        if not 0 <= owner < PyList_GET_SIZE(self.lanes):
            raise IndexError(f"{key!r} is routed to instance {owner} of {PyList_GET_SIZE(self.lanes)}")
        cdef Lane lane = self.lanes[owner]
        self._remember(key, lane)
        return lane

    cdef int _by_partial_key(self, list records) except -1:
        """Each key has two receivers; each record goes to the one that has got fewer so far.

        A key that is more than two can take has all of them: a sample tells which these are.
        """
        cdef PyObject *known
        cdef Lane first, second
        cdef tuple choices
        key_of, targets = self.function, self.targets
        for record in records:
            try:
                key = record if key_of is None else key_of(record)
            except Exception as error:
                self._reject(record, error)
                continue
            try:
                known = PyDict_GetItemWithError(targets, key)
                choices = self._two(key) if known is NULL else <tuple>known
                self.dice = self.dice * 1664525 + 1013904223
                if not self.dice >> SAMPLED_SHIFT and self.receivers > 2:
                    self._sample(key)
            except Exception as error:
                self._reject(record, key_error(key, error))
                continue
            if PyTuple_GET_SIZE(choices) == 2:
                first, second = choices
                first = second if self.counts[second.index] < self.counts[first.index] else first
            else:
                first = self._least(choices)
            self._one(first, record, key)
        return 0

    cdef Lane _least(self, tuple choices):
        """Of the next few the one that has got fewest."""
        cdef Py_ssize_t count = PyTuple_GET_SIZE(choices), i
        cdef Lane least = choices[self.next % count], other
        for i in range(1, min(count, CANDIDATES)):
            other = choices[(self.next + i) % count]
            if self.counts[other.index] < self.counts[least.index]:
                least = other
        self.next = (self.next + 1) % count
        return least

    cdef int _sample(self, key) except -1:
        if self.heavy is None:
            self.heavy = PairSketch(HOT_BYTES)
        self.heavy.add(None, key)
        if self.heavy.total < SAMPLES:
            return 0
        for _, hot, count, error in self.heavy.top(CANDIDATES):
            # With some room: at just twice its share a key and its two receivers are even.
            if (count - error) * self.receivers > 2.5 * SAMPLES:
                self._remember(hot, tuple(self.lanes))
        self.heavy.clear()
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
            self._one(<Lane>self.lanes[chosen], record, None)
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
