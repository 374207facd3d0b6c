# cython: language_level=3
"""A mapping of many keys that never stops for long to make room.

A dictionary that is full copies all that it has: with a million keys that takes tens of
milliseconds. So one that has become large is divided into two, by a bit of the keys' hashes, and
these again, until there are many small ones.
"""

from collections.abc import MutableMapping

from cpython.dict cimport (
    PyDict_Contains,
    PyDict_DelItem,
    PyDict_GetItemWithError,
    PyDict_SetItem,
    PyDict_Size,
)
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

cdef enum:
    MOST = 512  # keys in a dictionary that can be divided
    SLOTS = 256
    SHIFT = 56  # leaves so many

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15  # hashes of numbers are these numbers
cdef object MISSING = object()


cdef inline Py_ssize_t slot(key) except -1:
    return <Py_ssize_t>((<uint64_t>hash(key) * SPREAD) >> SHIFT)


cdef class Shards:
    """See above. As with a dictionary, nobody may add or remove keys while it is gone through."""

    def __init__(self, entries=()):
        self.only = {}
        self.slots = None
        if entries:
            self.update(entries)

    cdef dict part(self, key):
        """Where a key is, if it is there. Not to be kept: a `put` may have it be elsewhere."""
        if self.slots is None:
            return self.only
        return <dict>self.slots[slot(key)]

    cdef int put(self, key, value) except -1:
        cdef dict part = self.part(key)
        PyDict_SetItem(part, key, value)
        if PyDict_Size(part) > MOST:
            self.divide(key, part)
        return 0

    cdef int divide(self, key, dict part) except -1:
        """Have two dictionaries in the place of one, unless it has a single slot."""
        cdef Py_ssize_t low, high, at
        cdef dict lower = {}, upper = {}
        if self.slots is None:
            self.slots, self.only = [part] * SLOTS, None
        low = slot(key)
        if self.slots[low] is not self.slots[low ^ 1]:
            return 0
        high = low + 1
        while low > 0 and self.slots[low - 1] is part:
            low -= 1
        while high < SLOTS and self.slots[high] is part:
            high += 1
        at = (low + high) // 2
        for one, value in part.items():
            PyDict_SetItem(lower if slot(one) < at else upper, one, value)
        self.slots[low:high] = [lower] * (at - low) + [upper] * (high - at)
        return 0

    @property
    def dictionaries(self):
        """What has the keys now. Who goes through it in pieces finds all that stay meanwhile."""
        if self.slots is None:
            return [self.only]
        found, before = [], None
        for part in self.slots:
            if part is not before:
                found.append(part)
            before = part
        return found

    def __len__(self):
        return sum(map(len, self.dictionaries))

    def __bool__(self):
        return bool(self.only) if self.slots is None else any(self.slots)

    def __iter__(self):
        for part in self.dictionaries:
            yield from part

    def __contains__(self, key):
        return PyDict_Contains(self.part(key), key)

    def __getitem__(self, key):
        cdef PyObject *found = PyDict_GetItemWithError(self.part(key), key)
        if found is NULL:
            raise KeyError(key)
        return <object>found

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        PyDict_DelItem(self.part(key), key)

    def keys(self):
        """All keys, one by one."""
        return iter(self)

    def items(self):
        """All keys with their values, one by one."""
        for part in self.dictionaries:
            yield from part.items()

    def values(self):
        """All values, one by one."""
        for part in self.dictionaries:
            yield from part.values()

    def get(self, key, default=None):
        """The value of a key, or the default."""
        cdef PyObject *found = PyDict_GetItemWithError(self.part(key), key)
        return default if found is NULL else <object>found

    def setdefault(self, key, default=None):
        """The value of a key; if it had none, the default is it from now on."""
        cdef PyObject *found = PyDict_GetItemWithError(self.part(key), key)
        if found is not NULL:
            return <object>found
        self.put(key, default)
        return default

    def pop(self, key, default=MISSING):
        """The value of a key, which is here no more."""
        if default is MISSING:
            return self.part(key).pop(key)
        return self.part(key).pop(key, default)

    def popitem(self):
        """Any key with its value, which is here no more."""
        if self.slots is None:
            return self.only.popitem()
        for _ in range(SLOTS):
            part = <dict>self.slots[self.popped]
            if part:
                return part.popitem()
            self.popped = (self.popped + 1) % SLOTS
        raise KeyError("popitem(): there are no keys")

    def update(self, entries):
        """Put in a mapping, or pairs."""
        for key, value in entries.items() if hasattr(entries, "items") else entries:
            self.put(key, value)


MutableMapping.register(Shards)
