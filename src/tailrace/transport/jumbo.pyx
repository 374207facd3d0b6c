# cython: language_level=3
"""A jumbo: all that goes from one worker to another at a time, for many gates, in one encoding.

It consists of parcels, one for each gate, of items in their order. An item is a run of records with
two numbers about where they come from, or any other object. Records may have keys beside them, in a
list of their own: a key that is a part of its record is pickled once. Runs whose records are all ASCII
`str` or all `bytes` are laid out flat, several times faster than pickle, both ways; so are such keys
of flat runs, and what `plain` has made known. All else of the whole jumbo is pickled together, by
whoever calls this.

    'J' | 0 x 3 | parcels u32 | stamp i64
    each parcel:   gate u32, items u32
    each item:     kind u8, and then for
        a flat run      number i64, number i64, records u32, lengths u32 ..., bytes
        another run     number i64, number i64      its records are the next pickled object
        with keys       kind + 8 and all that, and then for the keys of
            a flat run      kind u8, and again a flat block, or nothing: the next pickled object
            another run     nothing: the next pickled object
        plain object    number i64, number i64
        other object                                the next pickled object
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from tailrace.transport.texts cimport text_of

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    void *PyUnicode_DATA(object)

TAG = ord("J")

cdef enum:
    HEAD_BYTES = 16
    PARCEL_BYTES = 8
    TEXTS = 0
    BYTES = 1
    RECORDS = 2
    PLAIN = 3
    OBJECT = 4
    KEYED = 8

_plain_type = None
_plain_fields = ("", "")


def plain(kind, str first, str second):
    """Have objects of a type laid out flat: made from two integers, its attributes of these names."""
    global _plain_type, _plain_fields
    _plain_type = kind
    _plain_fields = (first, second)


cdef uint8_t _kind_of(list records) except 255:
    """How records, or keys, can be laid out."""
    cdef Py_ssize_t count = PyList_GET_SIZE(records), i
    cdef object record
    if count == 0:
        return RECORDS
    if PyUnicode_CheckExact(<object>PyList_GET_ITEM(records, 0)):
        for i in range(count):
            record = <object>PyList_GET_ITEM(records, i)
            if not PyUnicode_CheckExact(record) or not PyUnicode_IS_COMPACT_ASCII(record):
                return RECORDS
        return TEXTS
    for i in range(count):
        if not PyBytes_CheckExact(<object>PyList_GET_ITEM(records, i)):
            return RECORDS
    return BYTES


cdef Py_ssize_t _flat_bytes(list records, uint8_t kind) except -1:
    cdef Py_ssize_t count = PyList_GET_SIZE(records), i, total = 4 + 4 * count
    for i in range(count):
        record = <object>PyList_GET_ITEM(records, i)
        total += PyUnicode_GET_LENGTH(record) if kind == TEXTS else PyBytes_GET_SIZE(record)
    return total


cdef inline char *_number(char *out, int64_t number) noexcept:
    memcpy(out, &number, 8)
    return out + 8


cdef inline char *_count(char *out, uint32_t count) noexcept:
    memcpy(out, &count, 4)
    return out + 4


cdef char *_write_flat(char *out, list records, uint8_t kind):
    cdef Py_ssize_t count = PyList_GET_SIZE(records), i
    cdef uint32_t size
    cdef char *lengths = _count(out, <uint32_t>count)
    out = lengths + 4 * count
    for i in range(count):
        record = <object>PyList_GET_ITEM(records, i)
        if kind == TEXTS:
            size = <uint32_t>PyUnicode_GET_LENGTH(record)
            memcpy(out, PyUnicode_DATA(record), size)
        else:
            size = <uint32_t>PyBytes_GET_SIZE(record)
            memcpy(out, PyBytes_AS_STRING(record), size)
        memcpy(lengths + 4 * i, &size, 4)
        out += size
    return out


cdef uint8_t _planned(list records, list objects, Py_ssize_t *total) except 255:
    """How they will be laid out: flat, with so many bytes more in total, or among the objects."""
    cdef uint8_t kind = _kind_of(records)
    cdef Py_ssize_t size
    if kind != RECORDS:
        size = _flat_bytes(records, kind)
        if size < 1 << 31:
            total[0] += size
            return kind
    objects.append(records)
    return RECORDS


def encode(list parcels not None, int64_t stamp):
    """The parcels, pairs of a gate and a list of items, as bytes; and a list of what is to be pickled.

    A run is a tuple of two numbers, a list of records and maybe a list of their keys; any other tuple
    is an object.
    """
    cdef Py_ssize_t total = HEAD_BYTES, items = 0, at = 0
    cdef uint8_t *kinds
    cdef uint8_t *key_kinds
    cdef uint8_t kind
    cdef char *out
    cdef list objects = []
    cdef tuple run
    for gate, parcel in parcels:
        items += PyList_GET_SIZE(<list?>parcel)
    kinds = <uint8_t *>malloc(2 * max(items, 1))
    if kinds is NULL:
        raise MemoryError()
    key_kinds = kinds + items
    try:
        for gate, parcel in parcels:
            total += PARCEL_BYTES
            for item in <list>parcel:
                if type(item) is tuple and is_run(<tuple>item):
                    run = <tuple>item
                    total += 17
                    kind = _planned(<list?>run[2], objects, &total)
                    if len(run) == 4:
                        key_kinds[at] = RECORDS
                        if kind == RECORDS:
                            objects.append(run[3])
                        else:
                            total += 1
                            key_kinds[at] = _planned(<list>run[3], objects, &total)
                        kind |= KEYED
                elif type(item) is _plain_type:
                    kind = PLAIN
                    total += 17
                else:
                    kind = OBJECT
                    total += 1
                    objects.append(item)
                kinds[at] = kind
                at += 1
        payload = PyBytes_FromStringAndSize(NULL, total)
        out = PyBytes_AS_STRING(payload)
        out[0] = TAG
        out[1] = out[2] = out[3] = 0
        out = _count(out + 4, <uint32_t>PyList_GET_SIZE(parcels))
        out = _number(out, stamp)
        at = 0
        for gate, parcel in parcels:
            out = _count(out, gate)
            out = _count(out, <uint32_t>PyList_GET_SIZE(<list>parcel))
            for item in <list>parcel:
                kind = kinds[at]
                out[0] = kind
                out += 1
                if kind == PLAIN:
                    out = _number(out, getattr(item, _plain_fields[0]))
                    out = _number(out, getattr(item, _plain_fields[1]))
                elif kind != OBJECT:
                    run = <tuple>item
                    out = _number(out, run[0])
                    out = _number(out, run[1])
                    if kind & ~KEYED != RECORDS:
                        out = _write_flat(out, <list>run[2], kind & ~KEYED)
                        if kind & KEYED:
                            out[0] = key_kinds[at]
                            out += 1
                            if key_kinds[at] != RECORDS:
                                out = _write_flat(out, <list>run[3], key_kinds[at])
                at += 1
    finally:
        free(kinds)
    return payload, objects


cdef class _Reader:
    """Reads numbers off a payload, and never beyond its end."""

    cdef const unsigned char[:] held
    cdef const char *at
    cdef const char *end

    def __cinit__(self, const unsigned char[:] payload):
        self.held = payload
        if payload.shape[0]:
            self.at = <const char *>&payload[0]
            self.end = self.at + payload.shape[0]

    cdef int need(self, Py_ssize_t size) except -1:
        if self.end - self.at < size:
            raise ValueError(f"a jumbo of {self.held.shape[0]} bytes ends where {size} more must follow")
        return 0

    cdef int64_t number(self) except? -1:
        cdef int64_t number
        self.need(8)
        memcpy(&number, self.at, 8)
        self.at += 8
        return number

    cdef uint32_t count(self) except? 4294967295:
        cdef uint32_t count
        self.need(4)
        memcpy(&count, self.at, 4)
        self.at += 4
        return count

    cdef uint8_t kind(self) except 255:
        """Of keys that lie behind a flat run."""
        cdef uint8_t kind
        self.need(1)
        kind = <uint8_t>self.at[0]
        self.at += 1
        if kind > RECORDS:
            raise ValueError(f"keys of the unknown kind {kind}")
        return kind

    cdef list flat(self, uint8_t kind):
        cdef uint32_t count = self.count(), size
        cdef Py_ssize_t i
        cdef const char *lengths
        cdef list records
        self.need(4 * <Py_ssize_t>count)
        lengths = self.at
        self.at += 4 * <Py_ssize_t>count
        records = PyList_New(count)
        for i in range(count):
            memcpy(&size, lengths + 4 * i, 4)
            self.need(size)
            if kind == TEXTS:
                record = text_of(self.at, size)
            else:
                record = PyBytes_FromStringAndSize(self.at, size)
            Py_INCREF(record)
            PyList_SET_ITEM(records, i, record)
            self.at += size
        return records


def decode(payload, unpickled):
    """The stamp and the parcels again. `unpickled(rest)` gives the objects that `encode` left over.

    It is called with what stands behind the flat part, and only if something does. Raises ValueError
    for anything that `encode` did not make.
    """
    cdef _Reader reader = _Reader(payload)
    cdef uint32_t parcels, items, gate
    cdef uint8_t kind
    cdef int64_t stamp, first, second
    cdef list result = [], found, run, pending = []
    cdef Py_ssize_t i, j, left = 0, parts
    reader.need(HEAD_BYTES)
    if reader.at[0] != TAG:
        raise ValueError(f"no jumbo: it starts with {<uint8_t>reader.at[0]}")
    reader.at += 4
    parcels = reader.count()
    stamp = reader.number()
    for i in range(parcels):
        gate = reader.count()
        items = reader.count()
        found = []
        for j in range(items):
            reader.need(1)
            kind = <uint8_t>reader.at[0]
            reader.at += 1
            if kind == OBJECT:
                pending.append((found, PyList_GET_SIZE(found), None))
                found.append(None)
            elif kind > OBJECT and not KEYED <= kind <= KEYED + RECORDS:
                raise ValueError(f"an item of the unknown kind {kind}")
            else:
                first = reader.number()
                second = reader.number()
                if kind == PLAIN:
                    found.append(_plain_type(first, second))
                elif kind == TEXTS or kind == BYTES:
                    found.append((first, second, reader.flat(kind)))
                else:
                    run = [first, second]
                    parts = 4 if kind & KEYED else 3
                    kind &= ~KEYED
                    if kind != RECORDS:
                        run.append(reader.flat(kind))
                        kind = reader.kind()
                        if kind != RECORDS:
                            run.append(reader.flat(kind))
                    for _ in range(PyList_GET_SIZE(run), parts):
                        pending.append((found, PyList_GET_SIZE(found), run))
                    found.append(run if PyList_GET_SIZE(run) < parts else _checked(run))
        result.append((gate, found))
    left = reader.end - reader.at
    if left or pending:
        objects = unpickled(memoryview(payload)[len(payload) - left:]) if left else []
        if type(objects) is not list or len(objects) != len(pending):
            raise ValueError(f"a jumbo lacks some of {len(pending)} pickled objects")
        for (into, place, made), thing in zip(pending, objects):
            if made is None:
                into[place] = thing
            elif type(thing) is not list:
                raise ValueError(f"the records of a run are a {type(thing).__name__}")
            else:
                (<list>made).append(thing)
                into[place] = _checked(<list>made)  # of a run with keys once more, with them
    return stamp, result


cdef tuple _checked(list run):
    """A run that is complete, or lacks but its keys."""
    if PyList_GET_SIZE(run) == 4 and len(<list>run[3]) != len(<list>run[2]):
        raise ValueError(f"a run of {len(run[2])} records has {len(run[3])} keys")
    return tuple(run)
