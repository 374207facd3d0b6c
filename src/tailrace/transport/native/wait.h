/* How a reader waits: a short spin while that pays, then sleep on the doorbell.
 *
 * Waking a sleeper costs tens of microseconds, spinning costs a core. So `ring_wait` spins only when
 * messages have lately been coming closer together than the longest spin, for about twice their
 * distance, and not at all while more threads want to run than there are cores: on a busy machine
 * those who sleep are let in first. A spin in vain makes the next ones rarer. Those who wait for more
 * than one ring decide for themselves how long to spin (`ring_spin_for`). */
#ifndef TAILRACE_WAIT_H
#define TAILRACE_WAIT_H

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "reader.h"

#define SPIN_MAX_NS 200000u
#define SPIN_LOOK_AT_LOAD_NS 10000000u
#define TIMER_SLACK_NS 1000u /* of the reader's thread: short sleeps end up to 50 us late without */

typedef struct ring_spin {
    uint64_t gap_ns;  /* smoothed distance between messages */
    uint64_t last_ns; /* when `passed` was last read, and what it was */
    uint64_t last_passed;
    uint64_t load_ns; /* when `crowded` was found out */
    unsigned rest, rests; /* waits to go without a spin; how many after the next vain one */
    int load_fd;
    long cores;
    bool crowded;
} ring_spin;

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static inline void ring_spin_open(ring_spin *spin) {
    cpu_set_t allowed;
    memset(spin, 0, sizeof *spin);
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    spin->cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    spin->load_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    spin->gap_ns = UINT64_C(1000000000);
    spin->last_ns = now_ns();
    spin->rests = 1;
}

static inline void ring_spin_close(ring_spin *spin) {
    if (spin->load_fd >= 0) close(spin->load_fd);
    spin->load_fd = -1;
}

/* How many threads want to run on this machine now; -1: nobody knows. The line is like
 * "0.20 0.18 0.12 1/80 11206", and the number is the 1. */
static inline long ring_runnable(int load_fd) {
    char text[96];
    ssize_t length = load_fd < 0 ? -1 : pread(load_fd, text, sizeof text - 1, 0);
    if (length <= 0) return -1;
    text[length] = 0;
    const char *slash = strchr(text, '/');
    if (!slash) return -1;
    while (slash > text && slash[-1] >= '0' && slash[-1] <= '9') slash--;
    return strtol(slash, NULL, 10);
}

/* Do more threads want to run than there are cores? As of some milliseconds ago. */
static inline bool ring_crowded(ring_spin *spin, uint64_t now) {
    if (now - spin->load_ns < SPIN_LOOK_AT_LOAD_NS) return spin->crowded;
    long runnable = ring_runnable(spin->load_fd);
    spin->crowded = runnable < 0 || runnable > spin->cores;
    spin->load_ns = now;
    return spin->crowded;
}

static inline uint64_t ring_spin_budget_ns(ring_spin *spin, const ring_reader *rd, uint64_t now) {
    uint64_t messages = rd->passed - spin->last_passed;
    if (messages) {
        uint64_t gap = (now - spin->last_ns) / messages;
        if (gap > UINT64_C(1000000000)) gap = UINT64_C(1000000000);
        spin->gap_ns = (spin->gap_ns * 7 + gap) / 8;
        if (gap < spin->gap_ns / 4) spin->gap_ns = gap * 4; /* a burst after silence */
        spin->last_ns = now;
        spin->last_passed = rd->passed;
    }
    if (spin->rest) {
        spin->rest--;
        return 0;
    }
    if (spin->gap_ns >= SPIN_MAX_NS || ring_crowded(spin, now)) return 0;
    uint64_t budget = spin->gap_ns * 2 + 2000;
    return budget < SPIN_MAX_NS ? budget : SPIN_MAX_NS;
}

/* Spin so long at most. True: something came. */
static inline bool ring_spin_for(ring_reader *rd, uint64_t limit_ns) {
    uint64_t start = now_ns();
    while (!ring_peek(rd)) {
        if (now_ns() - start >= limit_ns) return false;
        for (int i = 0; i < 4; i++) cpu_relax();
    }
    return true;
}

/* Spin as long as that pays, and at most limit_ns. True: something came. */
static inline bool ring_spin_if_it_pays(ring_reader *rd, ring_spin *spin, uint64_t limit_ns) {
    uint64_t budget = ring_spin_budget_ns(spin, rd, now_ns());
    if (budget == 0) return false;
    bool in_vain = budget <= limit_ns;
    if (ring_spin_for(rd, in_vain ? budget : limit_ns)) {
        spin->rests = 1;
        return true;
    }
    if (in_vain) {
        spin->rest = spin->rests;
        if (spin->rests < 64) spin->rests *= 2;
    }
    return false;
}

enum ring_wait_result { RING_TIMED_OUT = 0, RING_READABLE = 1, RING_INTERRUPTED = 2 };

/* Until something is readable, timeout_ns (UINT64_MAX: for ever) has passed, or a signal came. */
static inline int ring_wait(ring_reader *rd, ring_spin *spin, uint64_t timeout_ns) {
    if (ring_peek(rd)) return RING_READABLE;
    if (timeout_ns == 0) return RING_TIMED_OUT;
    uint64_t start = now_ns();
    for (;;) {
        uint64_t left = UINT64_MAX;
        if (timeout_ns != UINT64_MAX) {
            uint64_t waited = now_ns() - start;
            if (waited >= timeout_ns) return RING_TIMED_OUT;
            left = timeout_ns - waited;
        }
        if (ring_spin_if_it_pays(rd, spin, left)) return RING_READABLE;
        int most_ms = ring_reader_arm(rd);
        if (most_ms == 0) return RING_READABLE;
        if (most_ms > 0 && left > (uint64_t)most_ms * 1000000u)
            left = (uint64_t)most_ms * 1000000u;
        bool interrupted = !doorbell_wait(rd->bell, left) && errno == EINTR;
        ring_reader_disarm(rd);
        if (ring_peek(rd)) return RING_READABLE;
        if (interrupted || atomic_exchange(&rd->nudged, false)) return RING_INTERRUPTED;
    }
}

#endif
