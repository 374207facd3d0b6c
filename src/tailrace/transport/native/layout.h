/* The ring's memory, described once: everything that two processes must agree on stands here.
 *
 *     control | members[256] | headers[capacity] | payload[capacity * 64 bytes]
 *
 * The ring counts in units of 64 bytes. A message takes a run of units; the header of its first
 * unit describes it. Headers stand apart from the payload, so that no byte a user sends can ever
 * be taken for a header, and payload starts on a cache line.
 *
 * Positions grow for ever (modulo 2^35 units, 2 TiB): unit = position % capacity, lap = position /
 * capacity. A header carries the lap it was written in; one of an earlier lap is simply stale. A
 * header is never cleared. (So that an old lap number cannot come round again, writers stamp every
 * unit of their message, not only the first, in one lap out of many: see writer.h.)
 */
#ifndef TAILRACE_LAYOUT_H
#define TAILRACE_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "doorbell.h"

#define RING_MAGIC UINT64_C(0x676e697261727461) /* "atraring" */
#define RING_VERSION 2u

#define RING_UNIT_BYTES 64u
#define RING_MIN_BYTES 4096u
#define RING_MAX_BYTES (64u << 20) /* what is less, in units, fits the 20 bits of a header */
#define RING_MEMBERS 256u
#define RING_MEMBER_WORDS (RING_MEMBERS / 64u)

#ifndef RING_POSITION_BITS /* a test may shrink it, to see positions come round */
#define RING_POSITION_BITS 35
#endif
#define RING_POSITION_MASK ((UINT64_C(1) << RING_POSITION_BITS) - 1)

/* What a header's status can be, and who may change it into what:
 *     (stale) -> WRITING   the writer, or whoever needs to know its length (see ring_help)
 *     WRITING -> READY     the writer: committed
 *     WRITING -> SKIPPED   a reader: its window is full; the writer still owns the memory
 *     WRITING -> READ      the writer: given up; or a reader: its writer is dead
 *     SKIPPED -> READ      the writer: it has seen that it was skipped; or a reader: it is dead
 *     READY   -> TAKEN     a reader of a shared ring: claimed
 *     READY, TAKEN -> READ the reader: done with it; the memory may be used again, in order
 *     (stale) -> FLUSH     the writer: nothing here, go to the start of the ring
 */
enum ring_status {
    RING_STALE = 0,
    RING_WRITING = 1,
    RING_READY = 2,
    RING_READ = 3,
    RING_FLUSH = 4,
    RING_SKIPPED = 5,
    RING_TAKEN = 6,
};

/* header.state, one atomic word: lap:33 | units:20 | member:8 | status:3.
 * The member is the writer; in TAKEN it is the reader. */
typedef struct ring_header {
    _Atomic uint64_t state;
    uint32_t target;
    uint32_t length_kind; /* length_bytes:28 | kind:4 */
} ring_header;

/* control.tail, one atomic word: position:35 | units:20 | flush:1 | writer:8.
 * It says where the next message starts, and all about the last reservation: a writer that dies
 * in the very next instruction still leaves behind how long its hole is and whose. */

enum ring_role { RING_FREE = 0, RING_WRITER = 1, RING_READER = 2 };

typedef struct ring_counts {
    /* as a writer */
    _Atomic uint64_t sent, sent_bytes;
    _Atomic uint64_t full_waits; /* found the ring full */
    _Atomic uint64_t resent;     /* found itself skipped */
    /* as a reader */
    _Atomic uint64_t received, received_bytes;
    _Atomic uint64_t sleeps;
    _Atomic uint64_t skipped; /* its window was full */
    _Atomic uint64_t lost;    /* the writer died before the commit; shared: the reader before the
                               * release */
    /* as either */
    _Atomic uint64_t wakes; /* doorbells it rang */
} ring_counts;

typedef struct ring_member {
    /* Held by the member's thread as long as it lives. The kernel marks it when the thread dies,
     * SIGKILL included, in every pid namespace: asking whether a writer is alive costs no call. */
    pthread_mutex_t lifeline;
    _Atomic uint32_t role;
    _Atomic uint32_t tenant;   /* counts those who have had this place */
    _Atomic uint32_t patience; /* of readers with this writer: doubled by every skip in a row */
    uint8_t bell[DOORBELL_NAME_BYTES];
    _Alignas(64) ring_counts counts;
} ring_member;

/* Every word that different sides write has two cache lines of its own (adjacent-line prefetch). */
typedef struct ring_control {
    uint64_t magic;
    uint32_t version;
    uint32_t shared; /* many readers, each message to one of them */
    uint64_t total_bytes;
    uint64_t capacity; /* units, a power of two */
    uint64_t window;   /* messages */
    uint8_t nonce[16];
    _Atomic uint32_t peak;    /* members [0, peak) have ever been in use */
    _Atomic uint32_t readers; /* that have ever been opened */
    _Atomic uint32_t reader;  /* exclusive: the place of the reader, plus one; 0: none yet */
    _Alignas(128) _Atomic uint64_t tail;   /* writers */
    _Alignas(128) _Atomic uint64_t head;   /* readers: everything before it may be overwritten */
    _Alignas(128) _Atomic uint64_t cursor; /* shared readers: everything before it is claimed */
    _Alignas(128) _Atomic uint64_t data_sleepers[RING_MEMBER_WORDS];  /* readers asleep */
    _Alignas(128) _Atomic uint64_t space_sleepers[RING_MEMBER_WORDS]; /* writers asleep */
    _Alignas(128) ring_member members[RING_MEMBERS];
} ring_control;

/* One process's view of a ring. */
typedef struct ring {
    ring_control *control;
    ring_header *headers;
    uint8_t *payload;
    uint64_t capacity;
    unsigned shift; /* log2(capacity) */
    unsigned born;  /* ring_forks when this process opened it */
    int fd;         /* the creator's, or -1 */
} ring;

typedef struct ring_message {
    uint64_t position, units;
    const uint8_t *data;
    uint32_t length_bytes, target, kind;
} ring_message;

static inline uint64_t ring_ahead(uint64_t a, uint64_t b) { return (a - b) & RING_POSITION_MASK; }

static inline uint64_t ring_lap(const ring *r, uint64_t position) {
    return (position & RING_POSITION_MASK) >> r->shift;
}
static inline ring_header *ring_header_at(const ring *r, uint64_t position) {
    return &r->headers[position & (r->capacity - 1)];
}
static inline uint8_t *ring_payload_at(const ring *r, uint64_t position) {
    return r->payload + (position & (r->capacity - 1)) * RING_UNIT_BYTES;
}

static inline uint64_t state_pack(uint64_t lap, uint64_t units, unsigned member, unsigned status) {
    return lap << 31 | units << 11 | (uint64_t)member << 3 | status;
}
static inline uint64_t state_lap(uint64_t s) { return s >> 31; }
static inline uint64_t state_units(uint64_t s) { return s >> 11 & 0xfffff; }
static inline unsigned state_member(uint64_t s) { return (unsigned)(s >> 3) & 0xff; }
static inline unsigned state_status(uint64_t s) { return (unsigned)s & 7; }
static inline uint64_t state_with(uint64_t s, unsigned status) {
    return (s & ~UINT64_C(7)) | status;
}

static inline uint64_t tail_pack(uint64_t position, uint64_t units, bool flush, unsigned writer) {
    return position << 29 | units << 9 | (uint64_t)flush << 8 | writer;
}
static inline uint64_t tail_position(uint64_t t) { return t >> 29 & RING_POSITION_MASK; }
static inline uint64_t tail_units(uint64_t t) { return t >> 9 & 0xfffff; }
static inline bool tail_flush(uint64_t t) { return t >> 8 & 1; }
static inline unsigned tail_writer(uint64_t t) { return (unsigned)t & 0xff; }
static inline uint64_t tail_start(uint64_t t) {
    return (tail_position(t) - tail_units(t)) & RING_POSITION_MASK;
}

/* Every counter has one writer, so no atomic addition is needed; anyone may read it. */
static inline void ring_count(_Atomic uint64_t *counter, uint64_t by) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

#endif
