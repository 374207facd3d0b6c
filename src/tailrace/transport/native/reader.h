/* The reading side: the sliding window, in-order freeing, and the shared mode.
 *
 * A reader goes from left to right. A message that is still being written is left behind and
 * noted as late; those right of it are delivered. Late ones are looked at again before anything
 * new. When `window` messages have passed a late one, it is skipped.
 *
 * Guarantees, exclusive ring: messages of one writer are delivered in the order of their sends,
 * each once. Shared ring: each message to one reader; no order among readers.
 *
 * Skipping decides about delivery, not about memory: a skipped message's writer may be alive and
 * still copying, so its units are not used again until it has seen the skip, or is dead. */
#ifndef TAILRACE_READER_H
#define TAILRACE_READER_H

#include <sched.h>

#include "writer.h"

typedef struct ring_late {
    uint64_t position, units, passed; /* passed: how many had been delivered when it was met */
    unsigned writer;
} ring_late;

typedef struct ring_reader {
    ring *ring;
    doorbell *bell;
    unsigned member;
    uint64_t cursor;    /* exclusive: the next message to look at */
    uint64_t head;      /* exclusive: the first unit in use; ahead of the published one */
    uint64_t published; /* exclusive: what the writers know of head */
    uint64_t tail_seen; /* everything before it is reserved */
    uint64_t passed;
    bool staged; /* `next` holds a message that is found and not yet handed out */
    ring_message next;
    unsigned late_count; /* at most one per writer */
    ring_late late[RING_MEMBERS];
    /* Dead members whose place waits to be free again: which tenant (0: none), and up to where the
     * ring must have been emptied. */
    uint32_t dying[RING_MEMBERS];
    uint64_t dying_at[RING_MEMBERS];
    _Atomic bool nudged; /* another thread of ours wants ring_wait to return */
} ring_reader;

static inline ring_counts *ring_reader_counts(ring_reader *rd) {
    return &rd->ring->control->members[rd->member].counts;
}

/* ---- freeing ------------------------------------------------------------------------------- */

static inline void ring_publish(ring_reader *rd) {
    ring_control *c = rd->ring->control;
    if (rd->head == rd->published) return;
    /* Release: we are done with this memory. Pairs with the load of head in ring_reserve. */
    atomic_store(&c->head, rd->head);
    rd->published = rd->head;
    ring_wake(rd->ring, c->space_sleepers, RING_MEMBERS, rd->member, rd->bell);
}

/* Take one off the list of late messages. */
static inline void ring_forget_late(ring_reader *rd, unsigned i) {
    memmove(&rd->late[i], &rd->late[i + 1], (--rd->late_count - i) * sizeof rd->late[0]);
}

/* Exclusive: units from `position` are done with. Memory is given back in order: out of order it
 * is only marked, and passed over when its turn comes. */
static inline void ring_free_own(ring_reader *rd, uint64_t position, uint64_t units) {
    ring *r = rd->ring;
    if (position != rd->head) {
        ring_header *h = ring_header_at(r, position);
        uint64_t seen = atomic_load_explicit(&h->state, memory_order_relaxed);
        atomic_store_explicit(&h->state, state_with(seen, RING_READ), memory_order_relaxed);
        return;
    }
    rd->head = (position + units) & RING_POSITION_MASK;
    while (rd->head != rd->cursor) {
        uint64_t s = atomic_load_explicit(&ring_header_at(r, rd->head)->state,
                                          memory_order_acquire);
        if (state_status(s) != RING_READ && state_status(s) != RING_FLUSH) break;
        /* It may be late, given up by its writer, and not looked at since: that is settled now,
         * for after this its header is somebody else's. */
        for (unsigned i = 0; i < rd->late_count; i++)
            if (rd->late[i].position == rd->head) ring_forget_late(rd, i);
        rd->head = (rd->head + state_units(s)) & RING_POSITION_MASK;
    }
    if (ring_ahead(rd->head, rd->published) >= r->capacity / 8) ring_publish(rd);
}

/* Shared: pass the head over all that is done with, whoever did it. */
static inline void ring_free_shared(ring_reader *rd) {
    ring *r = rd->ring;
    ring_control *c = r->control;
    uint64_t head = atomic_load(&c->head);
    bool moved = false;
    while (head != atomic_load(&c->cursor)) {
        ring_header *h = ring_header_at(r, head);
        uint64_t s = atomic_load_explicit(&h->state, memory_order_acquire);
        unsigned status = state_status(s);
        if (state_lap(s) != ring_lap(r, head)) { /* others have moved on; so has the head */
            head = atomic_load(&c->head);
            continue;
        }
        if (status == RING_TAKEN || status == RING_SKIPPED) {
            if (!ring_gone(&c->members[state_member(s)])) break;
            uint64_t now = s;
            if (!atomic_compare_exchange_strong(&h->state, &now, state_with(s, RING_READ)))
                continue; /* it was done after all */
            ring_count(&ring_reader_counts(rd)->lost, 1);
        } else if (status != RING_READ && status != RING_FLUSH) {
            break;
        }
        uint64_t next = (head + state_units(s)) & RING_POSITION_MASK;
        if (atomic_compare_exchange_strong(&c->head, &head, next)) head = next, moved = true;
    }
    if (moved) ring_wake(r, c->space_sleepers, RING_MEMBERS, rd->member, rd->bell);
}

/* Done with a message that ring_take gave. */
static inline void ring_release(ring_reader *rd, uint64_t position, uint64_t units) {
    if (!rd->ring->control->shared) {
        ring_free_own(rd, position, units);
        return;
    }
    ring_header *h = ring_header_at(rd->ring, position);
    uint64_t s = atomic_load_explicit(&h->state, memory_order_relaxed);
    /* Release: pairs with the acquiring load of whoever passes the head over it. */
    atomic_store_explicit(&h->state, state_with(s, RING_READ), memory_order_release);
    ring_free_shared(rd);
}

/* A dead member's place can be given away once nothing of it is left in the ring. */
static inline void ring_bury(ring_reader *rd) {
    ring_control *c = rd->ring->control;
    uint64_t head = atomic_load(&c->head);
    unsigned peak = atomic_load_explicit(&c->peak, memory_order_relaxed);
    for (unsigned i = 0; i < peak; i++) {
        ring_member *m = &c->members[i];
        if (atomic_load_explicit(&m->role, memory_order_relaxed) == RING_FREE || !ring_gone(m)) {
            rd->dying[i] = 0;
            continue;
        }
        uint32_t tenant = atomic_load(&m->tenant);
        if (rd->dying[i] != tenant) { /* the tail is read after its death: nothing comes later */
            rd->dying[i] = tenant;
            rd->dying_at[i] = tail_position(atomic_load(&c->tail));
        }
        if (ring_ahead(head, rd->dying_at[i]) > RING_POSITION_MASK / 2) continue; /* not there yet */
        int error = pthread_mutex_trylock(&m->lifeline); /* held by whoever takes the place */
        if (error == EBUSY) continue;
        if (error == EOWNERDEAD) pthread_mutex_consistent(&m->lifeline);
        if (atomic_load(&m->tenant) == tenant) atomic_store(&m->role, RING_FREE);
        pthread_mutex_unlock(&m->lifeline);
        rd->dying[i] = 0;
    }
}

/* ---- finding the next message -------------------------------------------------------------- */

/* The header at a reserved position; stale only if the caller's position itself is outdated. */
static inline uint64_t ring_look(const ring *r, uint64_t position) {
    ring_header *h = ring_header_at(r, position);
    /* Acquire: pairs with the swap in ring_finish. */
    uint64_t s = atomic_load_explicit(&h->state, memory_order_acquire);
    if (state_lap(s) == ring_lap(r, position) && state_status(s) != RING_STALE) return s;
    uint64_t tail = atomic_load_explicit(&r->control->tail, memory_order_acquire);
    if (tail_start(tail) == position) ring_help(r, tail); /* else its successor did */
    return atomic_load_explicit(&h->state, memory_order_acquire);
}

static inline void ring_stage(ring_reader *rd, uint64_t position, uint64_t state) {
    const ring_header *h = ring_header_at(rd->ring, position);
    rd->next = (ring_message){
        .position = position,
        .units = state_units(state),
        .data = ring_payload_at(rd->ring, position),
        .length_bytes = h->length_kind & 0xfffffff,
        .target = h->target,
        .kind = h->length_kind >> 28,
    };
    rd->passed++;
    rd->staged = true;
}

/* Is there anything to the right of `position`? */
static inline bool ring_reserved_at(ring_reader *rd, uint64_t position) {
    if (position != rd->tail_seen) return true;
    rd->tail_seen = tail_position(atomic_load(&rd->ring->control->tail));
    return position != rd->tail_seen;
}

/* How many messages may pass one of that writer before it is skipped. A writer that was skipped
 * gets twice the time for its next try: sooner or later it is long enough. */
static inline uint64_t ring_window(const ring_reader *rd, unsigned writer) {
    const ring_control *c = rd->ring->control;
    uint32_t skips = atomic_load_explicit(&c->members[writer].patience, memory_order_relaxed);
    return c->window << (skips < 20 ? skips : 20);
}

/* The writer of a message that is not ready is dead: a message less. Returns the state that
 * stands in the header now, which is READY if the commit was its last deed. */
static inline uint64_t ring_declare_lost(ring_reader *rd, ring_header *h, uint64_t seen) {
    uint64_t now = atomic_load_explicit(&h->state, memory_order_acquire);
    if (now != seen) return now;
    if (!atomic_compare_exchange_strong(&h->state, &now, state_with(seen, RING_READ))) return now;
    ring_count(&ring_reader_counts(rd)->lost, 1);
    return state_with(seen, RING_READ);
}

/* Look at a late message once more: deliver it, skip it, or be done with it. `idle`: there is
 * time to ask whether its writer lives. True when a message is staged; `*i` is then the place of
 * the next late one, as it is when the one looked at is settled. */
static inline bool ring_settle(ring_reader *rd, unsigned *i, bool idle) {
    ring_late *late = &rd->late[*i];
    ring_header *h = ring_header_at(rd->ring, late->position);
    uint64_t s = atomic_load_explicit(&h->state, memory_order_acquire);
    unsigned status = state_status(s);
    if (status == RING_WRITING && rd->passed - late->passed >= ring_window(rd, late->writer)) {
        if (atomic_compare_exchange_strong(&h->state, &s, state_with(s, RING_SKIPPED))) {
            ring_count(&ring_reader_counts(rd)->skipped, 1);
            s = state_with(s, RING_SKIPPED);
        }
        status = state_status(s);
    }
    if (idle && (status == RING_WRITING || status == RING_SKIPPED) &&
        ring_gone(&rd->ring->control->members[late->writer])) {
        s = ring_declare_lost(rd, h, s);
        status = state_status(s);
    }
    if (status != RING_READY && status != RING_READ) {
        ++*i;
        return false;
    }
    ring_late settled = *late;
    ring_forget_late(rd, *i);
    if (status == RING_READY) {
        ring_stage(rd, settled.position, s);
        return true;
    }
    ring_free_own(rd, settled.position, settled.units);
    return false;
}

static inline bool ring_settle_all(ring_reader *rd, bool idle) {
    for (unsigned i = 0; i < rd->late_count;)
        if (ring_settle(rd, &i, idle)) return true;
    return false;
}

/* A writer's later message is there, so its late one is finished: that one comes first. */
static inline bool ring_settle_writer(ring_reader *rd, unsigned writer) {
    for (unsigned i = 0; i < rd->late_count; i++)
        if (rd->late[i].writer == writer) return ring_settle(rd, &i, false);
    return false;
}

static inline bool ring_find_own(ring_reader *rd) {
    ring *r = rd->ring;
    if (rd->late_count && ring_settle_all(rd, false)) return true;
    while (ring_reserved_at(rd, rd->cursor)) {
        uint64_t position = rd->cursor, s = ring_look(r, position), units = state_units(s);
        unsigned status = state_status(s), writer = state_member(s);
        if (rd->late_count && ring_settle_writer(rd, writer)) return true;
        rd->cursor = (position + units) & RING_POSITION_MASK;
        if (status == RING_READY) {
            ring_stage(rd, position, s);
            return true;
        }
        if (status == RING_WRITING || status == RING_SKIPPED)
            rd->late[rd->late_count++] = (ring_late){position, units, rd->passed, writer};
        else if (position == rd->head) /* FLUSH, or given up */
            ring_free_own(rd, position, units);
    }
    return rd->late_count && ring_settle_all(rd, true);
}

/* Shared: claim the next message, or (claim = false) only see whether there is one. */
static inline bool ring_find_shared(ring_reader *rd, bool claim) {
    ring *r = rd->ring;
    ring_control *c = r->control;
    uint64_t cursor = atomic_load(&c->cursor), position = cursor;
    uint64_t left = 0, left_state = 0; /* the leftmost that is being written, if `waiting` */
    uint64_t behind = 0;               /* messages passed since */
    bool waiting = false;
    while (ring_reserved_at(rd, position)) {
        uint64_t s = ring_look(r, position);
        uint64_t next = (position + state_units(s)) & RING_POSITION_MASK;
        unsigned status = state_status(s);
        bool outdated = state_lap(s) != ring_lap(r, position) || status == RING_STALE;
        if (outdated) { /* the others have carried on a whole lap since we read the cursor */
            rd->tail_seen = tail_position(atomic_load(&c->tail));
        } else if (status == RING_READY) {
            if (!claim) return true;
            uint64_t mine = state_pack(state_lap(s), state_units(s), rd->member, RING_TAKEN);
            if (!atomic_compare_exchange_strong(&ring_header_at(r, position)->state, &s, mine))
                continue;
            if (!waiting) atomic_compare_exchange_strong(&c->cursor, &cursor, next);
            ring_stage(rd, position, mine);
            return true;
        } else if (waiting) {
            position = next;
            behind += status == RING_TAKEN || status == RING_READ;
            if (behind < ring_window(rd, state_member(left_state))) continue;
            if (atomic_compare_exchange_strong(&ring_header_at(r, left)->state, &left_state,
                                               state_with(left_state, RING_SKIPPED)))
                ring_count(&ring_reader_counts(rd)->skipped, 1);
        } else if (status == RING_WRITING) {
            waiting = true, behind = 0, left = position, left_state = s, position = next;
            continue;
        } else if (atomic_compare_exchange_strong(&c->cursor, &cursor, next)) {
            cursor = position = next;
            continue;
        }
        cursor = position = atomic_load(&c->cursor);
        waiting = false;
    }
    ring_free_shared(rd);
    if (!waiting || !ring_gone(&c->members[state_member(left_state)])) return false;
    ring_declare_lost(rd, ring_header_at(r, left), left_state);
    return ring_find_shared(rd, claim);
}

/* ---- what a reader calls ------------------------------------------------------------------- */

/* Is a message there? On a shared ring another reader may still be faster to take it. */
static inline bool ring_peek(ring_reader *rd) {
    if (rd->ring->control->shared) return ring_find_shared(rd, false);
    if (rd->staged || ring_find_own(rd)) return true;
    ring_publish(rd);
    return false;
}

/* The next message, valid until ring_release. False: there is none now. */
static inline bool ring_take(ring_reader *rd, ring_message *out) {
    if (!(rd->ring->control->shared ? ring_find_shared(rd, true) : ring_peek(rd))) return false;
    *out = rd->next;
    rd->staged = false;
    ring_counts *counts = ring_reader_counts(rd);
    ring_count(&counts->received, 1);
    ring_count(&counts->received_bytes, out->length_bytes);
    if ((rd->passed & 0xffff) == 0) ring_bury(rd); /* a busy reader never sleeps */
    return true;
}

/* Go to sleep: announce it, look once more. Returns for how many ms it is safe to sleep (-1: until
 * the bell rings), or 0 when there is something to read. It is bounded while a message is being
 * written, whose writer may die without a word, and on a shared ring, where a reader may die
 * between the bell and its message. */
static inline int ring_reader_arm(ring_reader *rd) {
    ring_control *c = rd->ring->control;
    ring_announce(c->data_sleepers, rd->member); /* pairs with the wake in ring_finish */
    if (ring_peek(rd)) {
        ring_retract(c->data_sleepers, rd->member);
        return 0;
    }
    ring_bury(rd);
    ring_count(&ring_reader_counts(rd)->sleeps, 1);
    if (c->shared) return 100;
    return rd->late_count ? 10 : -1;
}

/* Awake again, by the bell or not. */
static inline void ring_reader_disarm(ring_reader *rd) {
    ring_retract(rd->ring->control->data_sleepers, rd->member);
}

/* 0, -EBUSY (an exclusive ring with a living reader) or -ENOSPC (no free place). A reader that
 * follows a dead one starts where that one had freed memory: it may see messages again. */
static inline int ring_reader_open(ring_reader *rd, ring *r, doorbell *bell) {
    ring_control *c = r->control;
    int member = ring_join(r, RING_READER, bell);
    if (member < 0) return -ENOSPC;
    uint32_t holder = atomic_load(&c->reader);
    while (!c->shared) {
        bool free = holder == 0;
        /* Somebody may be asking the same at this moment: a few times no is a no. */
        for (int tries = 0; !free && tries < 100; tries++, sched_yield())
            free = ring_gone(&c->members[holder - 1]);
        if (!free) {
            ring_leave(r, (unsigned)member);
            return -EBUSY;
        }
        if (atomic_compare_exchange_strong(&c->reader, &holder, (uint32_t)member + 1)) break;
    }
    memset(rd, 0, sizeof *rd);
    rd->ring = r;
    rd->bell = bell;
    rd->member = (unsigned)member;
    atomic_fetch_add(&c->readers, 1);
    rd->head = rd->published = rd->cursor = rd->tail_seen = atomic_load(&c->head);
    return 0;
}

/* Shared: release whatever this reader has taken and not released. */
static inline void ring_release_all(ring_reader *rd) {
    ring *r = rd->ring;
    uint64_t position = atomic_load(&r->control->head);
    uint64_t end = tail_position(atomic_load(&r->control->tail));
    while (position != end) {
        uint64_t s = ring_look(r, position);
        if (state_lap(s) != ring_lap(r, position) || state_status(s) == RING_STALE) {
            position = atomic_load(&r->control->head); /* ours cannot have been passed by it */
            if (ring_ahead(end, position) > r->capacity) break;
            continue;
        }
        if (state_status(s) == RING_TAKEN && state_member(s) == rd->member)
            atomic_store_explicit(&ring_header_at(r, position)->state, state_with(s, RING_READ),
                                  memory_order_release);
        position = (position + state_units(s)) & RING_POSITION_MASK;
    }
    ring_free_shared(rd);
}

static inline bool ring_reader_close(ring_reader *rd) {
    uint32_t holder = rd->member + 1;
    if (rd->ring->control->shared)
        ring_release_all(rd);
    else
        ring_publish(rd);
    atomic_compare_exchange_strong(&rd->ring->control->reader, &holder, 0);
    return ring_leave(rd->ring, rd->member);
}

#endif
