/* The writing side: reserve, fill in, commit. Lock-free; one compare-and-swap reserves. */
#ifndef TAILRACE_WRITER_H
#define TAILRACE_WRITER_H

#include "members.h"

#ifndef RING_WARM_BYTES /* a test may shrink it, to see rings start over */
#define RING_WARM_BYTES (256u << 10)
#endif

typedef struct ring_writer {
    ring *ring;
    doorbell *bell;
    unsigned member;
    uint64_t position, units;
    bool open; /* a reservation is not yet committed; a writer has one at a time */
} ring_writer;

enum ring_result { RING_DONE = 0, RING_FULL = 1, RING_WAS_SKIPPED = 2 };

/* Make sure that the header of the last reservation (as the tail word describes it) is up. Every
 * writer does this before it moves the tail on, so only the very last reservation can be without.
 *
 * A helper may be late. If the tail still is what it saw, nobody has reserved since, and the header
 * can only go from stale to this lap. If the tail has moved, the header was up before that, its
 * word has changed and never comes back, and the swap fails. */
static inline void ring_help(const ring *r, uint64_t tail) {
    uint64_t start = tail_start(tail), lap = ring_lap(r, start);
    if (tail_units(tail) == 0) return;
    ring_header *h = ring_header_at(r, start);
    uint64_t seen = atomic_load_explicit(&h->state, memory_order_acquire);
    if (state_lap(seen) == lap && state_status(seen) != RING_STALE) return;
    if (atomic_load(&r->control->tail) != tail) return;
    unsigned status = tail_flush(tail) ? RING_FLUSH : RING_WRITING;
    atomic_compare_exchange_strong(
        &h->state, &seen, state_pack(lap, tail_units(tail), tail_writer(tail), status));
}

/* In one lap out of many, stamp the units inside our message with this lap, so that no header,
 * however long unused, is ever old enough for its lap number to come round again. */
static inline bool ring_stamps(const ring *r, uint64_t start) {
    unsigned lap_bits = RING_POSITION_BITS - r->shift;
    return (ring_lap(r, start) & ((UINT64_C(1) << (lap_bits - 2)) - 1)) == 0;
}
static inline void ring_stamp(const ring *r, uint64_t start, uint64_t units) {
    uint64_t lap = ring_lap(r, start);
    for (uint64_t i = 1; i < units; i++)
        atomic_store_explicit(&ring_header_at(r, start + i)->state,
                              state_pack(lap, 0, 0, RING_STALE), memory_order_relaxed);
}

static inline uint64_t ring_units_for(uint64_t bytes) {
    return bytes ? (bytes + RING_UNIT_BYTES - 1) / RING_UNIT_BYTES : 1;
}

static inline int ring_finish(ring_writer *w, unsigned status);

/* A ring whose reader keeps up is empty again and again. It then starts over rather than going
 * through all of its memory, and what it uses stays in the caches. Until the reader has seen that,
 * the rest cannot be used; there is room for `warm` units at least, and no longer message makes it
 * start over. */
static inline bool ring_starts_over(const ring *r, uint64_t start, uint64_t head, uint64_t units) {
    uint64_t warm = RING_WARM_BYTES / RING_UNIT_BYTES;
    if (warm < r->capacity / 8) warm = r->capacity / 8;
    return head == start && (start & (r->capacity - 1)) >= warm && units <= warm;
}

/* Where the tail is too short for the message, or the ring starts over, the rest of it becomes a
 * flush mark: a reservation of its own, complete in the same swap. The message then goes to the
 * start of the ring. (In a lap of stamps it must stay ours until it is stamped; then it is a message
 * that is given up.) */
static inline int ring_reserve(ring_writer *w, uint64_t bytes) {
    ring *r = w->ring;
    ring_control *c = r->control;
    uint64_t units = ring_units_for(bytes);
    uint64_t tail = atomic_load_explicit(&c->tail, memory_order_acquire);
    for (;;) {
        ring_help(r, tail);
        uint64_t start = tail_position(tail);
        uint64_t to_end = r->capacity - (start & (r->capacity - 1));
        /* What readers did with this memory is over before we write. Pairs with ring_publish, and
         * is sequentially consistent for a writer that has announced its sleep. A head beyond our
         * (then outdated) start looks like a full ring, too. */
        uint64_t head = atomic_load(&c->head);
        bool flush = units > to_end || ring_starts_over(r, start, head, units);
        uint64_t want = flush ? to_end : units;
        if (ring_ahead(start + want, head) > r->capacity) {
            uint64_t now = atomic_load_explicit(&c->tail, memory_order_acquire);
            if (now == tail) return RING_FULL;
            tail = now;
            continue;
        }
        bool stamps = ring_stamps(r, start);
        uint64_t next = tail_pack(start + want, want, flush && !stamps, w->member);
        if (!atomic_compare_exchange_strong(&c->tail, &tail, next)) continue;
        w->position = start;
        w->units = want;
        w->open = true;
        if (stamps) ring_stamp(r, start, want);
        if (!flush) return RING_DONE;
        if (stamps) ring_finish(w, RING_READ);
        w->open = false;
        tail = atomic_load_explicit(&c->tail, memory_order_acquire);
    }
}

static inline uint8_t *ring_reserved(const ring_writer *w) {
    return ring_payload_at(w->ring, w->position);
}

static inline void ring_ring_readers(ring_writer *w) {
    ring_control *c = w->ring->control;
    /* An exclusive ring has one sleeper, but a dead one may have left its name there. */
    unsigned most = c->shared ? 1 : RING_MEMBERS;
    ring_wake(w->ring, c->data_sleepers, most, w->member, w->bell);
}

/* Ends a reservation: READY delivers it, READ gives it up. RING_WAS_SKIPPED: a reader lost
 * patience before, nothing was delivered, and the caller may write the message again. */
static inline int ring_finish(ring_writer *w, unsigned status) {
    ring *r = w->ring;
    ring_header *h = ring_header_at(r, w->position);
    uint64_t lap = ring_lap(r, w->position);
    uint64_t done = state_pack(lap, w->units, w->member, status);
    uint64_t seen = atomic_load_explicit(&h->state, memory_order_relaxed);
    int result = RING_DONE;
    /* From stale or WRITING (somebody helped) in at most three steps. The swap hands payload,
     * target and length to the reader; pairs with the acquiring load in reader.h. */
    do {
        if (state_lap(seen) == lap && state_status(seen) == RING_SKIPPED) {
            result = RING_WAS_SKIPPED;
            done = state_with(done, RING_READ);
        }
    } while (!atomic_compare_exchange_strong(&h->state, &seen, done));
    w->open = false;
    _Atomic uint32_t *patience = &r->control->members[w->member].patience;
    if (result == RING_WAS_SKIPPED)
        atomic_fetch_add(patience, 1);
    else if (atomic_load_explicit(patience, memory_order_relaxed))
        atomic_store_explicit(patience, 0, memory_order_relaxed);
    ring_ring_readers(w);
    return result;
}

static inline int ring_commit(ring_writer *w, uint32_t length_bytes, uint32_t target,
                              uint32_t kind) {
    ring_header *h = ring_header_at(w->ring, w->position);
    h->target = target;
    h->length_kind = length_bytes | kind << 28;
    ring_counts *counts = &w->ring->control->members[w->member].counts;
    int result = ring_finish(w, RING_READY);
    if (result == RING_WAS_SKIPPED) {
        ring_count(&counts->resent, 1);
        return result;
    }
    ring_count(&counts->sent, 1);
    ring_count(&counts->sent_bytes, length_bytes);
    return result;
}

static inline void ring_abort(ring_writer *w) {
    if (w->open) ring_finish(w, RING_READ);
}

static inline uint64_t ring_max_message_bytes(const ring *r) {
    return r->capacity * RING_UNIT_BYTES / 2;
}

/* 0, -ENOSPC (there is no free place), or -EHOSTUNREACH: the memory can be reached from here, but
 * not the doorbell of its living reader, who would sleep through every message. That is so across
 * network namespaces: to the ring they are different nodes. */
static inline int ring_writer_open(ring_writer *w, ring *r, doorbell *bell) {
    ring_control *c = r->control;
    for (unsigned i = 0; i < atomic_load(&c->peak); i++) {
        ring_member *m = &c->members[i];
        if (atomic_load(&m->role) == RING_READER && !doorbell_reaches(m->bell) && !ring_gone(m))
            return -EHOSTUNREACH;
    }
    int member = ring_join(r, RING_WRITER, bell);
    if (member < 0) return -ENOSPC;
    *w = (ring_writer){.ring = r, .bell = bell, .member = (unsigned)member};
    return 0;
}

static inline bool ring_writer_close(ring_writer *w) {
    ring_abort(w);
    return ring_leave(w->ring, w->member);
}

/* Units in use. A flush mark that the reader has yet to pass is none. */
static inline uint64_t ring_used(const ring *r) {
    uint64_t head = atomic_load(&r->control->head);
    uint64_t used = ring_ahead(tail_position(atomic_load(&r->control->tail)), head);
    uint64_t s = atomic_load(&ring_header_at(r, head)->state);
    bool flush = state_lap(s) == ring_lap(r, head) && state_status(s) == RING_FLUSH;
    return flush && state_units(s) <= used ? used - state_units(s) : used;
}

/* The ring was full: announce a sleep until there is room, and try once more. */
static inline int ring_reserve_or_arm(ring_writer *w, uint64_t bytes) {
    _Atomic uint64_t *sleepers = w->ring->control->space_sleepers;
    ring_announce(sleepers, w->member); /* pairs with the wake in ring_publish */
    int result = ring_reserve(w, bytes);
    if (result == RING_DONE) ring_retract(sleepers, w->member);
    /* What fills the ring may be the hole of a dead writer, and the reader asleep: nobody else
     * would wake it to look. */
    else ring_ring_readers(w);
    return result;
}

#endif
