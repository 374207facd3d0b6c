/* The ring in C alone, for the sanitizers: threads stand in for processes.
 *
 * Each scenario lists its acceptable outcomes; anything else ends the program with a message.
 * A thread that ends while it holds a reservation is what a killed process is to the ring: the
 * kernel marks its lifeline the same way.
 *
 *     ring_stress [seed]
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "native/wait.h"

#define CHECK(what, ...)                                       \
    do {                                                       \
        if (!(what)) {                                         \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);    \
            fprintf(stderr, __VA_ARGS__);                      \
            fprintf(stderr, " (%s does not hold)\n", #what);   \
            exit(1);                                           \
        }                                                      \
    } while (0)

#ifndef MESSAGES
#define MESSAGES 20000
#endif
#ifndef HURRIED
#define HURRIED MESSAGES /* of each writer where whoever is overtaken once sends again: many times */
#endif
enum { WRITERS = 4, READERS = 3, RING_BYTES = 8192 };

typedef struct part {
    ring *ring;
    unsigned id, seed;
    uint64_t messages;
    uint32_t length;
} part;

static uint32_t next_random(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u; }

/* id, sequence number, then bytes that follow from both: a torn or mixed message shows. */
static void fill_in(uint8_t *into, uint32_t length, uint32_t id, uint32_t sequence) {
    memcpy(into, &id, 4);
    memcpy(into + 4, &sequence, 4);
    for (uint32_t i = 8; i < length; i++) into[i] = (uint8_t)(id * 31 + sequence * 7 + i);
}
static void check_content(const ring_message *m, uint32_t *id, uint32_t *sequence) {
    CHECK(m->length_bytes >= 8, "message of %u bytes", m->length_bytes);
    memcpy(id, m->data, 4);
    memcpy(sequence, m->data + 4, 4);
    CHECK(m->target == *id, "target %u in a message of writer %u", m->target, *id);
    for (uint32_t i = 8; i < m->length_bytes; i++)
        CHECK(m->data[i] == (uint8_t)(*id * 31 + *sequence * 7 + i), "byte %u is torn", i);
}

static void reserve_waiting(ring_writer *w, uint64_t bytes) {
    if (ring_reserve(w, bytes) == RING_DONE) return;
    while (ring_reserve_or_arm(w, bytes) != RING_DONE) doorbell_wait(w->bell, 100000000u);
}

static void send_one(ring_writer *w, uint32_t length, uint32_t id, uint32_t sequence) {
    do {
        reserve_waiting(w, length);
        if (sequence % 3 == id % 3) sched_yield(); /* be overtaken, often */
        fill_in(ring_reserved(w), length, id, sequence);
    } while (ring_commit(w, length, id, 0) == RING_WAS_SKIPPED);
}

static void *write_many(void *argument) {
    part *p = argument;
    ring_writer w;
    doorbell bell;
    CHECK(doorbell_open(&bell) == 0, "no doorbell");
    CHECK(ring_writer_open(&w, p->ring, &bell) == 0, "no place");
    for (uint32_t i = 0; i < p->messages; i++) {
        uint32_t length = 8 + next_random(&p->seed) % (i % 50 ? 200 : RING_BYTES / 2 - 8);
        send_one(&w, length, p->id, i);
    }
    CHECK(ring_writer_close(&w), "the place belongs to this thread");
    doorbell_close(&bell);
    return NULL;
}

static void start_writers(ring *r, pthread_t *threads, part *parts, unsigned seed,
                          uint64_t messages) {
    for (unsigned i = 0; i < WRITERS; i++) {
        parts[i] = (part){.ring = r, .id = i, .seed = seed + i, .messages = messages};
        pthread_create(&threads[i], NULL, write_many, &parts[i]);
    }
}
static void join_all(pthread_t *threads, unsigned count) {
    for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static void open_reader(ring_reader *rd, ring *r, doorbell *bell) {
    CHECK(doorbell_open(bell) == 0, "no doorbell");
    CHECK(ring_reader_open(rd, r, bell) == 0, "no reader");
}
static bool take_waiting(ring_reader *rd, ring_spin *spin, ring_message *m, uint64_t timeout_ns) {
    return ring_wait(rd, spin, timeout_ns) == RING_READABLE && ring_take(rd, m);
}

/* Many writers, one reader that holds some messages and releases them out of order.
 * Acceptable: every message once, untorn, each writer's in order; at the end nothing in use. */
static void many_writers(unsigned seed, uint64_t window, unsigned messages) {
    ring r;
    ring_reader rd;
    ring_spin spin;
    doorbell bell;
    pthread_t threads[WRITERS];
    part parts[WRITERS];
    uint32_t expected[WRITERS] = {0};
    ring_message held[4];
    unsigned holding = 0;
    CHECK(ring_create(&r, RING_BYTES, false, window) == 0, "no ring");
    open_reader(&rd, &r, &bell);
    ring_spin_open(&spin);
    start_writers(&r, threads, parts, seed, messages);
    for (unsigned got = 0; got < WRITERS * messages;) {
        ring_message m;
        /* While messages are held the ring may be full: then let go of them. */
        if (!take_waiting(&rd, &spin, &m, holding ? 1000000 : UINT64_MAX)) {
            while (holding) --holding, ring_release(&rd, held[holding].position, held[holding].units);
            continue;
        }
        uint32_t id, sequence;
        check_content(&m, &id, &sequence);
        CHECK(sequence == expected[id], "writer %u: %u where %u was due", id, sequence, expected[id]);
        expected[id]++;
        got++;
        if (next_random(&seed) % 8 == 0 && holding < 4) {
            held[holding++] = m;
        } else {
            ring_release(&rd, m.position, m.units);
            if (holding && next_random(&seed) % 4 == 0)
                --holding, ring_release(&rd, held[holding].position, held[holding].units);
        }
    }
    while (holding) --holding, ring_release(&rd, held[holding].position, held[holding].units);
    join_all(threads, WRITERS);
    CHECK(!ring_peek(&rd), "more than was sent");
    CHECK(tail_position(atomic_load(&r.control->tail)) == atomic_load(&r.control->head),
          "memory still in use");
    ring_spin_close(&spin);
    ring_reader_close(&rd);
    doorbell_close(&bell);
    ring_unmap(&r);
}

static _Atomic uint8_t seen_by_some[WRITERS][MESSAGES];
static _Atomic unsigned taken;

static void *read_shared(void *argument) {
    part *p = argument;
    ring_reader rd;
    ring_spin spin;
    doorbell bell;
    open_reader(&rd, p->ring, &bell);
    ring_spin_open(&spin);
    while (atomic_load(&taken) < WRITERS * MESSAGES) {
        ring_message m;
        if (!take_waiting(&rd, &spin, &m, 10000000)) continue;
        uint32_t id, sequence;
        check_content(&m, &id, &sequence);
        CHECK(atomic_fetch_add(&seen_by_some[id][sequence], 1) == 0, "%u/%u came twice", id, sequence);
        ring_release(&rd, m.position, m.units);
        atomic_fetch_add(&taken, 1);
    }
    ring_spin_close(&spin);
    CHECK(ring_reader_close(&rd), "the place belongs to this thread");
    doorbell_close(&bell);
    return NULL;
}

/* Many writers, many readers. Acceptable: every message to exactly one reader, untorn. */
static void many_readers(unsigned seed) {
    ring r;
    pthread_t writers[WRITERS], readers[READERS];
    part parts[WRITERS], reading[READERS];
    memset(seen_by_some, 0, sizeof seen_by_some);
    atomic_store(&taken, 0);
    CHECK(ring_create(&r, RING_BYTES, true, 16) == 0, "no ring");
    for (unsigned i = 0; i < READERS; i++) {
        reading[i] = (part){.ring = &r, .id = i};
        pthread_create(&readers[i], NULL, read_shared, &reading[i]);
    }
    start_writers(&r, writers, parts, seed, MESSAGES);
    join_all(writers, WRITERS);
    join_all(readers, READERS);
    for (unsigned i = 0; i < WRITERS; i++)
        for (unsigned j = 0; j < MESSAGES; j++)
            CHECK(atomic_load(&seen_by_some[i][j]) == 1, "%u/%u never came", i, j);
    ring_unmap(&r);
}

/* Sends `messages`, then ends with a reservation open, its lifeline never let go. */
static void *die_writing(void *argument) {
    part *p = argument;
    ring_writer w;
    doorbell bell;
    CHECK(doorbell_open(&bell) == 0 && ring_writer_open(&w, p->ring, &bell) == 0, "no place");
    for (uint32_t i = 0; i < p->messages; i++) send_one(&w, 8, p->id, i);
    reserve_waiting(&w, p->length ? p->length : 8);
    doorbell_close(&bell);
    return NULL;
}

/* Writers die in mid-write, one after the other, more often than there are places and than the ring
 * has room. Acceptable: exactly one message lost for each, all others delivered, in order. */
static void dying_writers(void) {
    ring r;
    ring_reader rd;
    ring_spin spin;
    doorbell bell;
    enum { DEATHS = 2 * RING_MEMBERS };
    CHECK(ring_create(&r, RING_MIN_BYTES, false, 1000) == 0, "no ring");
    open_reader(&rd, &r, &bell);
    ring_spin_open(&spin);
    for (uint32_t death = 0; death < DEATHS; death++) {
        pthread_t thread;
        part p = {.ring = &r, .id = death, .messages = 3};
        pthread_create(&thread, NULL, die_writing, &p);
        for (uint32_t i = 0; i < 3;) {
            ring_message m;
            if (!take_waiting(&rd, &spin, &m, UINT64_MAX)) continue;
            uint32_t id, sequence;
            check_content(&m, &id, &sequence);
            CHECK(id == death && sequence == i, "%u/%u where %u/%u was due", id, sequence, death, i);
            ring_release(&rd, m.position, m.units);
            i++;
        }
        pthread_join(thread, NULL);
        CHECK(ring_wait(&rd, &spin, 0) == RING_TIMED_OUT, "a message of nobody");
        ring_reader_arm(&rd);
        ring_reader_disarm(&rd);
        uint64_t lost = atomic_load(&ring_reader_counts(&rd)->lost);
        CHECK(lost == death + 1, "%llu lost after %u deaths", (unsigned long long)lost, death + 1);
    }
    ring_spin_close(&spin);
    ring_reader_close(&rd);
    doorbell_close(&bell);
    ring_unmap(&r);
}

static void *fill_half(void *argument) {
    part *p = argument;
    ring_writer w;
    doorbell bell;
    CHECK(doorbell_open(&bell) == 0 && ring_writer_open(&w, p->ring, &bell) == 0, "no place");
    uint32_t half = (uint32_t)ring_max_message_bytes(p->ring);
    for (uint32_t i = 0; i < p->messages; i++) send_one(&w, half, p->id, i);
    CHECK(ring_writer_close(&w), "the place belongs to this thread");
    doorbell_close(&bell);
    return NULL;
}

/* A writer dies with a large hole while the reader sleeps, so that the next finds the ring full.
 * Acceptable: the sleeping reader is woken to look, the hole is one message lost, the rest comes. */
static void hole_while_asleep(void) {
    ring r;
    ring_reader rd;
    ring_spin spin;
    ring_writer w;
    doorbell bell;
    ring_message m;
    CHECK(ring_create(&r, RING_MIN_BYTES, false, 64) == 0, "no ring");
    open_reader(&rd, &r, &bell);
    ring_spin_open(&spin);
    CHECK(ring_writer_open(&w, &r, &bell) == 0, "no place");
    send_one(&w, 16 * RING_UNIT_BYTES, 0, 0);
    CHECK(ring_take(&rd, &m), "nothing came");
    ring_release(&rd, m.position, m.units);
    CHECK(ring_reader_arm(&rd) == -1, "asleep until the bell rings");
    pthread_t thread;
    part dying = {.ring = &r, .id = 1, .length = (uint32_t)ring_max_message_bytes(&r)};
    pthread_create(&thread, NULL, die_writing, &dying);
    pthread_join(thread, NULL);
    part next = {.ring = &r, .id = 2, .messages = 3};
    pthread_create(&thread, NULL, fill_half, &next);
    CHECK(doorbell_wait(&bell, UINT64_C(60000000000)), "the sleeping reader was not woken");
    ring_reader_disarm(&rd);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t id, sequence;
        CHECK(take_waiting(&rd, &spin, &m, UINT64_MAX), "nothing came");
        check_content(&m, &id, &sequence);
        CHECK(id == 2 && sequence == i, "%u/%u where 2/%u was due", id, sequence, i);
        ring_release(&rd, m.position, m.units);
    }
    pthread_join(thread, NULL);
    CHECK(atomic_load(&ring_reader_counts(&rd)->lost) == 1, "the hole was not counted");
    ring_writer_close(&w);
    ring_spin_close(&spin);
    ring_reader_close(&rd);
    doorbell_close(&bell);
    ring_unmap(&r);
}

static void *die_reading(void *argument) {
    part *p = argument;
    ring_reader rd;
    doorbell bell;
    ring_message m;
    open_reader(&rd, p->ring, &bell);
    CHECK(ring_take(&rd, &m), "nothing came");
    doorbell_close(&bell);
    return NULL;
}

/* Writers and readers of a shared ring die in the middle, more often than there are places.
 * Acceptable: one message lost for each, and never any memory. */
static void deaths_on_a_shared_ring(void) {
    ring r;
    ring_reader rd;
    ring_writer w;
    doorbell bell;
    ring_message m;
    CHECK(ring_create(&r, RING_MIN_BYTES, true, 64) == 0, "no ring");
    open_reader(&rd, &r, &bell);
    CHECK(ring_writer_open(&w, &r, &bell) == 0, "no place");
    for (uint32_t death = 0; death < 2 * RING_MEMBERS; death++) {
        pthread_t thread;
        part p = {.ring = &r, .id = death};
        send_one(&w, 100, 0, death);
        pthread_create(&thread, NULL, death % 2 ? die_reading : die_writing, &p);
        pthread_join(thread, NULL);
        if (death % 2 == 0) {
            CHECK(ring_take(&rd, &m) && m.length_bytes == 100, "held up by the dead");
            ring_release(&rd, m.position, m.units);
        }
        CHECK(!ring_take(&rd, &m), "a message of nobody");
        ring_reader_arm(&rd);
        ring_reader_disarm(&rd);
        uint64_t lost = atomic_load(&ring_reader_counts(&rd)->lost);
        CHECK(lost == death + 1, "%llu lost after %u deaths", (unsigned long long)lost, death + 1);
        CHECK(tail_position(atomic_load(&r.control->tail)) == atomic_load(&r.control->head),
              "memory of the dead still in use");
    }
    ring_writer_close(&w);
    ring_reader_close(&rd);
    doorbell_close(&bell);
    ring_unmap(&r);
}

/* Two readers with different knowledge of the dead: one has seen a tenant of a place die, the other
 * gives the place away. Acceptable: the first does not bury the next tenant by what it knew. */
static void the_next_tenant(void) {
    ring r;
    ring_reader one, other;
    doorbell bell_one, bell_other;
    pthread_t thread;
    CHECK(ring_create(&r, RING_MIN_BYTES, true, 64) == 0, "no ring");
    open_reader(&one, &r, &bell_one);
    open_reader(&other, &r, &bell_other);
    part p = {.ring = &r, .id = 0};
    pthread_create(&thread, NULL, die_writing, &p);
    pthread_join(thread, NULL);
    ring_bury(&one); /* dead, and its hole is still in the ring */
    CHECK(!ring_peek(&other), "a message of nobody");
    ring_bury(&other);
    ring_bury(&other);
    CHECK(atomic_load(&r.control->members[2].role) == RING_FREE, "the place is not free");
    pthread_create(&thread, NULL, die_writing, &p);
    pthread_join(thread, NULL);
    ring_bury(&one);
    CHECK(atomic_load(&r.control->members[2].role) == RING_WRITER, "buried with its hole in the ring");
    ring_reader_close(&one);
    ring_reader_close(&other);
    doorbell_close(&bell_one);
    doorbell_close(&bell_other);
    ring_unmap(&r);
}

static _Atomic unsigned opened, tried;

static void *open_at_once(void *argument) {
    part *p = argument;
    ring_reader *rd = malloc(sizeof *rd);
    doorbell bell;
    CHECK(doorbell_open(&bell) == 0, "no doorbell");
    if (ring_reader_open(rd, p->ring, &bell) == 0) atomic_fetch_add(&opened, 1);
    doorbell_close(&bell);
    atomic_fetch_add(&tried, 1);
    while (atomic_load(&tried) < READERS) sched_yield(); /* nobody dies before all have tried */
    free(rd);
    return NULL;
}

/* Several want to be the reader of an exclusive ring, at once or after one another's death.
 * Acceptable: at every time at most one; and a dead one's place can be had. */
static void one_reader(void) {
    for (int turn = 0; turn < 300; turn++) {
        ring r;
        pthread_t threads[READERS];
        part p = {.ring = &r};
        ring_reader rd;
        doorbell bell;
        CHECK(ring_create(&r, RING_MIN_BYTES, false, 64) == 0, "no ring");
        atomic_store(&opened, 0);
        atomic_store(&tried, 0);
        open_reader(&rd, &r, &bell);
        CHECK(ring_reader_open(&(ring_reader){0}, &r, &bell) == -EBUSY, "a second reader");
        ring_reader_close(&rd);
        for (int i = 0; i < READERS; i++) pthread_create(&threads[i], NULL, open_at_once, &p);
        join_all(threads, READERS);
        CHECK(atomic_load(&opened) == 1, "%u readers", atomic_load(&opened));
        doorbell_close(&bell);
        open_reader(&rd, &r, &bell);
        ring_reader_close(&rd);
        doorbell_close(&bell);
        ring_unmap(&r);
    }
}

/* A slow writer is overtaken. Acceptable: within the window its message comes when it commits;
 * after the window its commit says it was skipped, its memory is not used by others before, and
 * sent again the message comes. */
static void slow_writer(void) {
    ring r;
    ring_reader rd;
    ring_writer slow, quick;
    doorbell bell;
    ring_message m;
    enum { WINDOW = 4 };
    CHECK(ring_create(&r, RING_MIN_BYTES, false, WINDOW) == 0, "no ring");
    open_reader(&rd, &r, &bell);
    CHECK(ring_writer_open(&slow, &r, &bell) == 0 && ring_writer_open(&quick, &r, &bell) == 0,
          "no place");
    for (int overtaken = 0; overtaken <= WINDOW + 1; overtaken++) {
        CHECK(ring_reserve(&slow, 8) == RING_DONE, "full");
        for (uint32_t i = 0; i < (uint32_t)overtaken; i++) {
            send_one(&quick, 8, 1, i);
            CHECK(ring_take(&rd, &m), "held up by the slow writer");
            ring_release(&rd, m.position, m.units);
        }
        CHECK(!ring_peek(&rd), "delivered before its commit");
        fill_in(ring_reserved(&slow), 8, 0, 0);
        int result = ring_commit(&slow, 8, 0, 0);
        CHECK((result == RING_WAS_SKIPPED) == (overtaken >= WINDOW), "%d after %d", result, overtaken);
        if (result == RING_WAS_SKIPPED) { /* now it may be overtaken by twice as many */
            CHECK(ring_reserve(&slow, 8) == RING_DONE, "full");
            for (uint32_t i = 0; i < 2 * WINDOW - 1; i++) {
                send_one(&quick, 8, 1, i);
                CHECK(ring_take(&rd, &m), "held up by the slow writer");
                ring_release(&rd, m.position, m.units);
            }
            fill_in(ring_reserved(&slow), 8, 0, 0);
            CHECK(ring_commit(&slow, 8, 0, 0) == RING_DONE, "skipped again, too early");
        }
        CHECK(ring_take(&rd, &m) && m.target == 0, "not delivered");
        ring_release(&rd, m.position, m.units);
        CHECK(!ring_peek(&rd) && rd.late_count == 0, "delivered twice");
    }
    ring_writer_close(&slow);
    ring_writer_close(&quick);
    ring_reader_close(&rd);
    doorbell_close(&bell);
    ring_unmap(&r);
}

/* A writer that helps with a reservation long gone.
 * Acceptable: nothing changes, whatever stands there now. */
static void late_helper(void) {
    ring r;
    ring_reader rd;
    ring_writer w;
    doorbell bell;
    ring_message m;
    CHECK(ring_create(&r, RING_MIN_BYTES, false, 64) == 0, "no ring");
    open_reader(&rd, &r, &bell);
    CHECK(ring_writer_open(&w, &r, &bell) == 0, "no place");
    send_one(&w, 8, 0, 0);
    uint64_t old_tail = atomic_load(&r.control->tail);
    for (uint32_t i = 1; i <= 3 * r.capacity; i++) {
        CHECK(ring_take(&rd, &m), "nothing came");
        ring_release(&rd, m.position, m.units);
        send_one(&w, 8, 0, i);
        uint64_t before = atomic_load(&ring_header_at(&r, tail_start(old_tail))->state);
        ring_help(&r, old_tail);
        uint64_t after = atomic_load(&ring_header_at(&r, tail_start(old_tail))->state);
        CHECK(before == after, "message %u: a header was changed by a late helper", i);
    }
    ring_writer_close(&w);
    ring_reader_close(&rd);
    doorbell_close(&bell);
    ring_unmap(&r);
}

/* Units that were no message's first for so long that their old lap number comes round again (with
 * the few position bits of the test build). Acceptable: an old header is never taken for a new one. */
static void old_laps(void) {
    ring r;
    ring_reader rd;
    ring_writer w;
    doorbell bell;
    ring_message m;
    CHECK(ring_create(&r, RING_MIN_BYTES, false, 64) == 0, "no ring");
    open_reader(&rd, &r, &bell);
    CHECK(ring_writer_open(&w, &r, &bell) == 0, "no place");
    uint64_t laps = (RING_POSITION_MASK + 1) >> r.shift, turns = laps < 100000 ? laps : 1000;
    uint32_t half = (uint32_t)ring_max_message_bytes(&r), sequence = 0;
    for (int small = 0; small < 3; small++) {
        for (uint64_t i = 0; i < r.capacity; i++) { /* one lap of small ones, each looked at early */
            CHECK(ring_reserve(&w, 8) == RING_DONE, "full");
            CHECK(!ring_peek(&rd), "an old header was taken for a new one");
            fill_in(ring_reserved(&w), 8, 0, sequence);
            CHECK(ring_commit(&w, 8, 0, 0) == RING_DONE, "skipped");
            CHECK(ring_take(&rd, &m) && m.length_bytes == 8, "nothing, or something else, came");
            ring_release(&rd, m.position, m.units);
        }
        for (uint64_t i = 0; i < 2 * (turns - 1); i++) { /* and all but one lap of large ones */
            send_one(&w, half, 0, ++sequence);
            CHECK(ring_take(&rd, &m) && m.length_bytes == half, "nothing, or something else, came");
            ring_release(&rd, m.position, m.units);
        }
    }
    ring_writer_close(&w);
    ring_reader_close(&rd);
    doorbell_close(&bell);
    ring_unmap(&r);
}

int main(int count, char **arguments) {
    unsigned seed = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 1;
    alarm(240); /* a lost wake-up shows as a hang */
    late_helper();
    old_laps();
    hole_while_asleep();
    deaths_on_a_shared_ring();
    the_next_tenant();
    one_reader();
    slow_writer();
    dying_writers();
    many_writers(seed, 64, MESSAGES);
    many_writers(seed + 100, 1, HURRIED);
    many_readers(seed + 200);
    printf("ring_stress: all outcomes acceptable (seed %u, positions of %d bits)\n", seed,
           RING_POSITION_BITS);
    return 0;
}
