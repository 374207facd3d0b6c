# cython: language_level=3
"""The most frequent pairs of keys of a stream, in a bounded number of bytes: SpaceSaving.

A pair that is not known takes the place of one of the rarest, and counts as often as that one did, and
once more: nobody knows how often it came before. So no count is too low, and by how much it may be too
high is noted beside it (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k
elements in data streams, ICDT 2005).

Pairs of equal count hang together in a bucket, and buckets lie in the order of their counts: to count a
pair is to hand it to the next bucket, whatever the number of pairs.
"""

from sys import getsizeof

from cpython.object cimport Py_EQ, PyObject, PyObject_Hash, PyObject_RichCompareBool
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef enum:
    NONE = -1
    FIRST_ROOM = 64
    SMALLEST_BYTES = 4096
    LARGEST_SHARE = 16  # of the bytes, for one pair

# A counter and a bucket, of which a fifth may be spare, and four places in the table at most.
cdef int64_t OWN_BYTES = (sizeof(Counter) + sizeof(Bucket)) * 5 // 4 + 4 * sizeof(int32_t)

cdef inline uint64_t _mixed(uint64_t one, uint64_t other) noexcept:
    cdef uint64_t hash = (one ^ (other * 0x9E3779B97F4A7C15ULL)) + (other >> 29)
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93ULL
    return hash ^ hash >> 32


def _size_of(key):
    """About what a key takes in memory."""
    if isinstance(key, tuple):
        return getsizeof(key) + sum([_size_of(part) for part in key])
    return getsizeof(key, 256)


cdef class PairSketch:
    """See above. Keys are hashed and compared as in a dict; those that are counted are kept.

    For every pair that is there, ``count - error <= true count <= count``. Every pair that came more
    than `floor` times is there, but for those so large that they are left out (`left_out` says how
    many). If all pairs take equally many bytes, so that m have room, `floor` is at most `total` / m.

    >>> sketch = PairSketch()
    >>> for tag in ["java", "ruby", "java"]:
    ...     _ = sketch.add("Asia", tag)
    >>> sketch.top(1)
    [('Asia', 'java', 2, 0)]
    """

    def __cinit__(self):
        self.counters = NULL
        self.buckets = NULL
        self.table = NULL
        self.lowest = self.free_counter = self.free_bucket = NONE

    def __init__(self, int64_t size_bytes=1 << 20):
        if size_bytes < SMALLEST_BYTES:
            raise ValueError(
                f"a sketch of {size_bytes} bytes has room for nothing; give it {SMALLEST_BYTES} at least"
            )
        self.size_bytes = size_bytes

    def __dealloc__(self):
        self._forget()
        free(self.counters)
        free(self.buckets)
        free(self.table)

    def __len__(self):
        return self.used

    cdef int _forget(self) except -1:
        """Let go of all keys, but not before everything is in order: they may have code of theirs."""
        cdef int32_t at
        cdef list held = []
        for at in range(self.room):
            if self.counters[at].key_in is not NULL:
                held.append(<object>self.counters[at].key_in)
                held.append(<object>self.counters[at].key_out)
                Py_DECREF(<object>self.counters[at].key_in)
                Py_DECREF(<object>self.counters[at].key_out)
                self.counters[at].key_in = NULL
        self.used = self.room = 0
        return 0

    def clear(self):
        """Begin anew."""
        self.total = self.floor = self.left_out = self.used_bytes = 0
        if self.table is not NULL:
            memset(self.table, 0xFF, self.slots * sizeof(int32_t))
        self.lowest = self.free_counter = self.free_bucket = NONE
        self._forget()

    cpdef int add(self, key_in, key_out) except -1:
        """Count a pair. Raises TypeError for a key that has no hash."""
        cdef uint64_t hash = _mixed(
            <uint64_t>PyObject_Hash(key_in), <uint64_t>PyObject_Hash(key_out)
        )
        cdef int32_t slot = 0, at = self._find(hash, key_in, key_out, &slot)
        cdef int64_t cost
        self.total += 1
        if at != NONE:
            return self._raise(at)
        cost = OWN_BYTES + <int64_t>_size_of(key_in) + <int64_t>_size_of(key_out)
        if cost * LARGEST_SHARE > self.size_bytes:
            self.left_out += 1
            return 0
        while self.used_bytes + cost > self.size_bytes:
            self._evict()
        return self._insert(hash, key_in, key_out, cost)

    def counts(self):
        """All pairs that are there, in no order: (key in, key out, count, error)."""
        cdef int32_t at
        cdef Counter *counter
        cdef list found = []
        for at in range(self.room):
            counter = &self.counters[at]
            if counter.key_in is not NULL:
                found.append((
                    <object>counter.key_in,
                    <object>counter.key_out,
                    self.buckets[counter.bucket].count,
                    counter.error,
                ))
        return found

    def top(self, Py_ssize_t most):
        """The most frequent pairs, the first of them first."""
        cdef int32_t bucket = self.lowest, at
        cdef Counter *counter
        cdef list found = []
        while bucket != NONE and self.buckets[bucket].after != NONE:
            bucket = self.buckets[bucket].after
        while bucket != NONE and len(found) < most:
            at = self.buckets[bucket].first
            while at != NONE and len(found) < most:
                counter = &self.counters[at]
                found.append((
                    <object>counter.key_in,
                    <object>counter.key_out,
                    self.buckets[bucket].count,
                    counter.error,
                ))
                at = counter.after
            bucket = self.buckets[bucket].before
        return found

    cdef int32_t _find(self, uint64_t hash, key_in, key_out, int32_t *slot) except -2:
        """Where a pair is counted; NONE, and `slot` where it would be listed."""
        cdef int32_t at, mask = self.slots - 1
        cdef Counter *counter
        if not self.slots:
            return NONE
        slot[0] = <int32_t>(hash & <uint64_t>mask)
        while True:
            at = self.table[slot[0]]
            if at == NONE:
                return NONE
            counter = &self.counters[at]
            if counter.hash == hash and (
                counter.key_in is <PyObject *>key_in
                or PyObject_RichCompareBool(<object>counter.key_in, key_in, Py_EQ)
            ) and (
                self.counters[at].key_out is <PyObject *>key_out
                or PyObject_RichCompareBool(<object>self.counters[at].key_out, key_out, Py_EQ)
            ):
                return at
            slot[0] = (slot[0] + 1) & mask

    # ---- buckets ----

    cdef int _raise(self, int32_t at) noexcept:
        """Once more of a pair that is there."""
        cdef int32_t bucket = self.counters[at].bucket, above = self.buckets[bucket].after
        cdef int64_t count = self.buckets[bucket].count + 1
        if above == NONE or self.buckets[above].count != count:
            if self.buckets[bucket].first == at and self.counters[at].after == NONE:
                self.buckets[bucket].count = count  # alone in it
                return 0
            above = self._new_bucket(count, bucket)
        self._leave(at)
        self._join(at, above)
        return 0

    cdef int _join(self, int32_t at, int32_t bucket) noexcept:
        cdef int32_t first = self.buckets[bucket].first
        self.counters[at].bucket = bucket
        self.counters[at].before = NONE
        self.counters[at].after = first
        if first != NONE:
            self.counters[first].before = at
        self.buckets[bucket].first = at
        return 0

    cdef int _leave(self, int32_t at) noexcept:
        """Out of its bucket, which goes when it is empty."""
        cdef int32_t bucket = self.counters[at].bucket
        cdef int32_t before = self.counters[at].before, after = self.counters[at].after
        if after != NONE:
            self.counters[after].before = before
        if before != NONE:
            self.counters[before].after = after
            return 0
        self.buckets[bucket].first = after
        if after == NONE:
            before, after = self.buckets[bucket].before, self.buckets[bucket].after
            if after != NONE:
                self.buckets[after].before = before
            if before != NONE:
                self.buckets[before].after = after
            else:
                self.lowest = after
            self.buckets[bucket].after = self.free_bucket
            self.free_bucket = bucket
        return 0

    cdef int32_t _new_bucket(self, int64_t count, int32_t behind) noexcept:
        """An empty bucket behind another, or before all (NONE)."""
        cdef int32_t bucket = self.free_bucket
        cdef int32_t after = self.lowest if behind == NONE else self.buckets[behind].after
        # There are as many as counters, and one more.
        self.free_bucket = self.buckets[bucket].after
        self.buckets[bucket].count = count
        self.buckets[bucket].first = NONE
        self.buckets[bucket].before = behind
        self.buckets[bucket].after = after
        if after != NONE:
            self.buckets[after].before = bucket
        if behind == NONE:
            self.lowest = bucket
        else:
            self.buckets[behind].after = bucket
        return bucket

    # ---- pairs that come and go ----

    cdef int _insert(self, uint64_t hash, key_in, key_out, int64_t cost) except -1:
        """A new pair: it may have come as often as any that was given up."""
        cdef int32_t at, slot, bucket = self.lowest, behind = NONE
        cdef int64_t count = self.floor + 1
        if self.free_counter == NONE:
            self._grow()
            bucket = self.lowest
        at = self.free_counter
        self.free_counter = self.counters[at].after
        # What is there has at least the floor: the place is one of the first two.
        while bucket != NONE and self.buckets[bucket].count < count:
            behind, bucket = bucket, self.buckets[bucket].after
        if bucket == NONE or self.buckets[bucket].count != count:
            bucket = self._new_bucket(count, behind)
        Py_INCREF(key_in)
        Py_INCREF(key_out)
        self.counters[at].key_in = <PyObject *>key_in
        self.counters[at].key_out = <PyObject *>key_out
        self.counters[at].hash = hash
        self.counters[at].error = self.floor
        self.counters[at].bytes = cost
        self._join(at, bucket)
        slot = <int32_t>(hash & <uint64_t>(self.slots - 1))
        while self.table[slot] != NONE:
            slot = (slot + 1) & (self.slots - 1)
        self.table[slot] = at
        self.used += 1
        self.used_bytes += cost
        return 0

    cdef int _evict(self) except -1:
        """Give up one of the rarest, the one that came to its count last."""
        cdef int32_t at = self.buckets[self.lowest].first
        cdef Counter *counter = &self.counters[at]
        cdef PyObject *key_in = counter.key_in
        cdef PyObject *key_out = counter.key_out
        self.floor = max(self.floor, self.buckets[self.lowest].count)
        self._leave(at)
        self._unlist(at)
        self.used -= 1
        self.used_bytes -= counter.bytes
        counter.key_in = counter.key_out = NULL
        counter.after = self.free_counter
        self.free_counter = at
        Py_DECREF(<object>key_in)
        Py_DECREF(<object>key_out)
        return 0

    cdef int _unlist(self, int32_t at) noexcept:
        """Out of the table; those behind it move up, so that they are found."""
        cdef int32_t mask = self.slots - 1, hole, next, home
        hole = <int32_t>(self.counters[at].hash & <uint64_t>mask)
        while self.table[hole] != at:
            hole = (hole + 1) & mask
        next = hole
        while True:
            self.table[hole] = NONE
            while True:
                next = (next + 1) & mask
                if self.table[next] == NONE:
                    return 0
                home = <int32_t>(self.counters[self.table[next]].hash & <uint64_t>mask)
                if ((next - home) & mask) >= ((next - hole) & mask):
                    break
            self.table[hole] = self.table[next]
            hole = next

    cdef int _grow(self) except -1:
        cdef int32_t room = self.room + max(self.room // 4, <int32_t>FIRST_ROOM), slots = 1, at, slot
        cdef int32_t first = self.room, buckets = room + 1
        cdef int32_t first_bucket = self.room + 1 if self.room else 0
        cdef void *memory = realloc(self.counters, room * sizeof(Counter))
        while slots < 2 * room:
            slots *= 2
        if memory is NULL:
            raise MemoryError()
        self.counters = <Counter *>memory
        memory = realloc(self.buckets, buckets * sizeof(Bucket))
        if memory is NULL:
            raise MemoryError()
        self.buckets = <Bucket *>memory
        memory = realloc(self.table, slots * sizeof(int32_t))
        if memory is NULL:
            raise MemoryError()
        self.table = <int32_t *>memory
        for at in range(first, room):
            self.counters[at].key_in = self.counters[at].key_out = NULL
            self.counters[at].after = at + 1 if at + 1 < room else NONE
        self.free_counter = first
        for at in range(first_bucket, buckets):
            self.buckets[at].after = at + 1 if at + 1 < buckets else self.free_bucket
        self.free_bucket = first_bucket
        self.room, self.slots = room, slots
        memset(self.table, 0xFF, slots * sizeof(int32_t))
        for at in range(first):
            if self.counters[at].key_in is not NULL:
                slot = <int32_t>(self.counters[at].hash & <uint64_t>(slots - 1))
                while self.table[slot] != NONE:
                    slot = (slot + 1) & (slots - 1)
                self.table[slot] = at
        return 0
