# What the modules of the ring use of transport/native.
#
# Each module compiles the headers for itself and so has its own of what they keep. Numbers of
# threads (ring_thread) may only be compared within a module. Forks are counted where rings are
# opened, in memory.pyx alone: what touches ring_forks is declared there and must not stand here.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "native/doorbell.h" nogil:
    ctypedef struct doorbell:
        int fd
        uint8_t name[16]
    int doorbell_open(doorbell *)
    void doorbell_close(doorbell *)
    bint doorbell_ring(const doorbell *, const uint8_t *)
    void doorbell_clear(const doorbell *)
    bint doorbell_wait(const doorbell *, uint64_t)
    bint descriptor_wait(int, uint64_t)

cdef extern from "native/layout.h" nogil:
    const unsigned RING_MEMBERS, RING_UNIT_BYTES
    int RING_READER

    ctypedef struct ring_counts:
        uint64_t sent, sent_bytes, full_waits, resent
        uint64_t received, received_bytes, sleeps, skipped, lost, wakes
    ctypedef struct ring_member:
        ring_counts counts
    ctypedef struct ring_control:
        uint32_t peak, readers
        uint64_t tail, head
        uint8_t nonce[16]
        ring_member members[256]
    ctypedef struct ring:
        ring_control *control
        uint64_t capacity
        unsigned born
        int fd
    ctypedef struct ring_message:
        uint64_t position, units
        const uint8_t *data
        uint32_t length_bytes, target, kind

    void ring_count(uint64_t *, uint64_t)

cdef extern from "native/members.h" nogil:
    uint64_t ring_thread()
    bint ring_any_alive(ring *, int)

cdef extern from "native/writer.h" nogil:
    int RING_DONE

    ctypedef struct ring_writer:
        bint open
        unsigned member

    uint64_t ring_used(const ring *)
    uint64_t ring_max_message_bytes(const ring *)
    int ring_writer_open(ring_writer *, ring *, doorbell *)
    bint ring_writer_close(ring_writer *)
    int ring_reserve(ring_writer *, uint64_t)
    int ring_reserve_or_arm(ring_writer *, uint64_t)
    uint8_t *ring_reserved(const ring_writer *)
    int ring_commit(ring_writer *, uint32_t, uint32_t, uint32_t)
    void ring_abort(ring_writer *)

cdef extern from "native/reader.h" nogil:
    ctypedef struct ring_reader:
        bint nudged

    int ring_reader_open(ring_reader *, ring *, doorbell *)
    bint ring_reader_close(ring_reader *)
    bint ring_peek(ring_reader *)
    bint ring_take(ring_reader *, ring_message *)
    void ring_release(ring_reader *, uint64_t, uint64_t)
    int ring_reader_arm(ring_reader *)
    void ring_reader_disarm(ring_reader *)

cdef extern from "native/wait.h" nogil:
    int RING_READABLE, RING_INTERRUPTED

    ctypedef struct ring_spin:
        pass

    void ring_spin_open(ring_spin *)
    void ring_spin_close(ring_spin *)
    bint ring_spin_for(ring_reader *, uint64_t)
    bint ring_crowded(ring_spin *, uint64_t)
    int ring_wait(ring_reader *, ring_spin *, uint64_t)
    uint64_t now_ns()
