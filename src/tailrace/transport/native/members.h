/* Opening a ring, and who takes part in it: memory, membership, life and death, sleep and wake. */
#ifndef TAILRACE_MEMBERS_H
#define TAILRACE_MEMBERS_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "layout.h"

/* ---- the memory ---------------------------------------------------------------------------- */

/* A forked child inherits our mappings but not our place in them (lifelines belong to a thread):
 * it sees that it is a child by this count, once somebody has it watch. 0, or an errno. */
static unsigned ring_forks;
static inline void ring_on_fork(void) { ring_forks++; }
static inline int ring_watch_forks(void) { return pthread_atfork(NULL, NULL, ring_on_fork); }

/* A number for the calling thread that no other thread of the process ever has. */
static inline uint64_t ring_thread(void) {
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t mine __attribute__((tls_model("initial-exec")));
    if (!mine) mine = atomic_fetch_add(&threads, 1) + 1;
    return mine;
}

static inline uint64_t ring_total_bytes(uint64_t capacity) {
    return sizeof(ring_control) + capacity * (sizeof(ring_header) + RING_UNIT_BYTES);
}

static inline void ring_place(ring *r, void *memory, uint64_t capacity, int fd) {
    r->control = memory;
    r->headers = (ring_header *)((uint8_t *)memory + sizeof(ring_control));
    r->payload = (uint8_t *)(r->headers + capacity);
    r->capacity = capacity;
    r->shift = (unsigned)__builtin_ctzll(capacity);
    r->born = ring_forks;
    r->fd = fd;
}

static inline int ring_init_members(ring_control *c) {
    pthread_mutexattr_t kind;
    int error = pthread_mutexattr_init(&kind);
    if (error) return error;
    error = pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    if (!error) error = pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    for (unsigned i = 0; i < RING_MEMBERS && !error; i++)
        error = pthread_mutex_init(&c->members[i].lifeline, &kind);
    pthread_mutexattr_destroy(&kind);
    return error;
}

/* The memory has no name in any file system: it is reached through its creator's descriptor and
 * is gone with the last process that maps it, however that ends. Sealed: nobody can cut it short
 * under somebody who maps it. Populated now, or else by the first messages. 0 or -errno. */
static inline int ring_create_as(ring *r, uint64_t bytes, bool shared, uint64_t window,
                                 bool populate) {
    uint64_t capacity = RING_MIN_BYTES / RING_UNIT_BYTES;
    while (capacity * RING_UNIT_BYTES < bytes) capacity *= 2;
    uint64_t total = ring_total_bytes(capacity);
    int error, fd = memfd_create("tailrace-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -errno;
    int flags = MAP_SHARED | (populate ? MAP_POPULATE : 0);
    if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)total) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        goto failed;
    void *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) goto failed;
    ring_place(r, memory, capacity, fd);
    ring_control *c = r->control;
    c->version = RING_VERSION;
    c->shared = shared;
    c->total_bytes = total;
    c->capacity = capacity;
    c->window = window;
    error = ring_init_members(c);
    if (!error && getrandom(c->nonce, sizeof c->nonce, 0) != (ssize_t)sizeof c->nonce) error = EIO;
    if (error) {
        munmap(memory, total);
        r->control = NULL;
        r->fd = -1;
        errno = error;
        goto failed;
    }
    /* The first lap is 1, so that the zeroes of new memory are of an earlier one. */
    atomic_store(&c->tail, tail_pack(capacity, 0, false, 0));
    atomic_store(&c->head, capacity);
    atomic_store(&c->cursor, capacity);
    c->magic = RING_MAGIC;
    return 0;
failed:
    error = errno;
    close(fd);
    return -error;
}

static inline int ring_create(ring *r, uint64_t bytes, bool shared, uint64_t window) {
    return ring_create_as(r, bytes, shared, window, true);
}

/* Why a descriptor was refused, for ring_attach's caller to put into words. */
enum ring_refusal { RING_NOT_A_RING = 1, RING_OTHER_VERSION, RING_OTHER_SIZE, RING_OTHER_RING };

/* Maps the ring behind fd, if it is one. 0, -errno, or a ring_refusal (found: the offending value).
 * The caller closes fd. To populate a ring that its creator has not is to do that for it. */
static inline int ring_attach_as(ring *r, int fd, const uint8_t nonce[16], uint64_t *found,
                                 bool populate) {
    struct stat file;
    if (fstat(fd, &file) < 0) return -errno;
    *found = (uint64_t)file.st_size;
    if (*found < sizeof(ring_control)) return RING_NOT_A_RING;
    uint64_t total = *found;
    int flags = MAP_SHARED | (populate ? MAP_POPULATE : 0);
    void *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) return -errno;
    const ring_control *c = memory;
    int refusal = 0;
    if (c->magic != RING_MAGIC)
        refusal = RING_NOT_A_RING, *found = c->magic;
    else if (c->version != RING_VERSION)
        refusal = RING_OTHER_VERSION, *found = c->version;
    else if (c->total_bytes != total || c->capacity < RING_MIN_BYTES / RING_UNIT_BYTES ||
             c->capacity > RING_MAX_BYTES / RING_UNIT_BYTES || c->capacity & (c->capacity - 1) ||
             ring_total_bytes(c->capacity) != total)
        refusal = RING_OTHER_SIZE;
    else if (memcmp(c->nonce, nonce, sizeof c->nonce) != 0)
        refusal = RING_OTHER_RING;
    if (refusal) {
        munmap(memory, total);
        return refusal;
    }
    ring_place(r, memory, c->capacity, -1);
    return 0;
}

static inline int ring_attach(ring *r, int fd, const uint8_t nonce[16], uint64_t *found) {
    return ring_attach_as(r, fd, nonce, found, true);
}

static inline void ring_unmap(ring *r) {
    if (r->control) munmap(r->control, ring_total_bytes(r->capacity));
    if (r->fd >= 0) close(r->fd);
    r->control = NULL;
    r->fd = -1;
}

/* ---- life and death ------------------------------------------------------------------------ */

/* Is the member gone: died, left, or never there? A false "no" is possible while somebody else
 * asks the same at this moment; ask again later. */
static inline bool ring_gone(ring_member *m) {
    int error = pthread_mutex_trylock(&m->lifeline);
    if (error == EBUSY) return false;
    if (error == EOWNERDEAD) pthread_mutex_consistent(&m->lifeline);
    pthread_mutex_unlock(&m->lifeline);
    return true;
}

/* Take a place. Its number, or -1 when all are taken. The place of a dead member is free again
 * only when nothing of it can still be in the ring: ring_bury. */
static inline int ring_join(ring *r, enum ring_role role, const doorbell *bell) {
    ring_member *members = r->control->members;
    for (unsigned i = 0; i < RING_MEMBERS; i++) {
        if (atomic_load(&members[i].role) != RING_FREE) continue;
        int error = pthread_mutex_trylock(&members[i].lifeline);
        if (error == EBUSY) continue;
        if (error == EOWNERDEAD) pthread_mutex_consistent(&members[i].lifeline);
        if (atomic_load(&members[i].role) != RING_FREE) { /* taken and left dead meanwhile */
            pthread_mutex_unlock(&members[i].lifeline);
            continue;
        }
        memcpy(members[i].bell, bell->name, sizeof members[i].bell);
        atomic_fetch_add(&members[i].tenant, 1);
        atomic_store(&members[i].patience, 0);
        atomic_store(&members[i].role, role);
        uint32_t peak = atomic_load(&r->control->peak);
        while (peak <= i && !atomic_compare_exchange_weak(&r->control->peak, &peak, i + 1)) {
        }
        return (int)i;
    }
    return -1;
}

/* Give the place back, with nothing of ours unfinished in the ring. False: this is not the thread
 * that took it; the place is kept until that thread ends, and the mapping must stay. */
static inline bool ring_leave(ring *r, unsigned member) {
    ring_member *m = &r->control->members[member];
    atomic_fetch_and(&r->control->data_sleepers[member / 64], ~(UINT64_C(1) << member % 64));
    atomic_fetch_and(&r->control->space_sleepers[member / 64], ~(UINT64_C(1) << member % 64));
    atomic_store(&m->role, RING_FREE);
    return pthread_mutex_unlock(&m->lifeline) == 0;
}

static inline bool ring_any_alive(ring *r, enum ring_role role) {
    unsigned peak = atomic_load(&r->control->peak);
    for (unsigned i = 0; i < peak; i++) {
        ring_member *m = &r->control->members[i];
        if (atomic_load(&m->role) == role && !ring_gone(m)) return true;
    }
    return false;
}

/* ---- sleep and wake ------------------------------------------------------------------------ */

/* Announce that this member is about to sleep. After it the member must look once more: the
 * other side publishes first and reads the announcement second (both sequentially consistent),
 * so that one of the two always sees the other. Pairs with ring_wake. */
static inline void ring_announce(_Atomic uint64_t *sleepers, unsigned member) {
    atomic_fetch_or(&sleepers[member / 64], UINT64_C(1) << member % 64);
    atomic_thread_fence(memory_order_seq_cst);
}
static inline void ring_retract(_Atomic uint64_t *sleepers, unsigned member) {
    uint64_t bit = UINT64_C(1) << member % 64;
    if (atomic_load_explicit(&sleepers[member / 64], memory_order_relaxed) & bit)
        atomic_fetch_and(&sleepers[member / 64], ~bit);
}

/* After publishing: ring the bell of `most` members that announced their sleep. Whoever clears the
 * announcement rings, so a sleeper is rung once. A dead sleeper does not use up the ring. */
static inline void ring_wake(ring *r, _Atomic uint64_t *sleepers, unsigned most, unsigned self,
                      const doorbell *bell) {
    for (unsigned word = 0; word < RING_MEMBER_WORDS; word++) {
        uint64_t seen;
        while (most && (seen = atomic_load(&sleepers[word])) != 0) { /* pairs with ring_announce */
            unsigned bit = (unsigned)__builtin_ctzll(seen);
            if (!(atomic_fetch_and(&sleepers[word], ~(UINT64_C(1) << bit)) >> bit & 1)) continue;
            ring_member *sleeper = &r->control->members[word * 64 + bit];
            if (doorbell_ring(bell, sleeper->bell)) {
                ring_count(&r->control->members[self].counts.wakes, 1);
                most--;
            }
        }
    }
}

#endif
