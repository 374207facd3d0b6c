/* A writer of the ring that can be halted between its reservation and its commit, for tests. */
#define _GNU_SOURCE
#include "native/writer.h"

typedef struct slow_writer {
    ring ring;
    doorbell bell;
    ring_writer writer;
} slow_writer;

slow_writer *slow_open(int fd, const uint8_t *nonce) {
    uint64_t found;
    slow_writer *slow = calloc(1, sizeof *slow);
    if (!slow) return NULL;
    if (ring_attach(&slow->ring, fd, nonce, &found) == 0) {
        if (doorbell_open(&slow->bell) == 0) {
            if (ring_writer_open(&slow->writer, &slow->ring, &slow->bell) == 0) return slow;
            doorbell_close(&slow->bell);
        }
        ring_unmap(&slow->ring);
    }
    free(slow);
    return NULL;
}

/* Whether there was room. With `wait` there is, sooner or later. */
bool slow_reserve(slow_writer *slow, uint64_t length, bool wait) {
    if (ring_reserve(&slow->writer, length) == RING_DONE) return true;
    if (!wait) return false;
    while (ring_reserve_or_arm(&slow->writer, length) != RING_DONE)
        doorbell_wait(&slow->bell, 100000000u);
    return true;
}

void slow_fill(slow_writer *slow, const void *payload, uint64_t length) {
    memcpy(ring_reserved(&slow->writer), payload, length);
}

/* False: it was skipped. */
bool slow_commit(slow_writer *slow, uint32_t length) {
    return ring_commit(&slow->writer, length, 0, 0) == RING_DONE;
}

void slow_abort(slow_writer *slow) { ring_abort(&slow->writer); }

void slow_close(slow_writer *slow) {
    ring_writer_close(&slow->writer);
    doorbell_close(&slow->bell);
    ring_unmap(&slow->ring);
    free(slow);
}
