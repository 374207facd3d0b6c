/* How a reader waits: a short spin while that pays, then sleep on the doorbell.
 *
 * Waking a sleeper costs tens of microseconds, spinning costs a core. So a reader spins only when
 * messages have lately been coming closer together than the longest spin, for about twice their
 * distance, and not at all while more threads want to run than there are cores, or when it had to
 * wait for a core itself: on a busy machine those who sleep are let in first. A spin in vain
 * makes the next ones rarer. The longest spin is 200 us: from 5,000 messages/s on, a reader that
 * nobody else's work needs the core for keeps it, and saves each message the wake-up.
 *
 * Messages that come less often but in a rhythm (rhythm.h) are expected: the reader sleeps until
 * shortly before the next one is due and spins from there on. */
#ifndef TAILRACE_WAIT_H
#define TAILRACE_WAIT_H

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "reader.h"
#include "rhythm.h"

#define SPIN_MAX_NS BEAT_SILENCE_NS /* what comes closer than a beat is spun for */
#define SPIN_LOOK_AT_LOAD_NS 10000000u
#define TIMER_SLACK_NS 1000u /* of the reader's thread: the usual 50 us are too much for a beat */
#define CORE_WAKES_NS 100000u
#define CALM_FROM_PPM 30000u
#define CALM_MIN_NS 50000000u
#define CALM_MAX_NS 1600000000u

typedef struct ring_spin {
    uint64_t gap_ns;  /* smoothed distance between messages */
    uint64_t last_ns; /* when `passed` was last read, and what it was */
    uint64_t last_passed;
    rhythm rhythm;
    uint64_t load_ns; /* when `crowded` was found out */
    uint64_t waited_ns, turns; /* how long for a core, and how often it got one, as of then, ever */
    uint64_t waiting_ppm; /* smoothed: the part of the time that it waited for a core */
    uint64_t calm_ns, patience_ns; /* no spin before; how long the next calm is */
    unsigned rest, rests; /* waits to go without a spin; how many after the next vain one */
    int load_fd, wait_fd;
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

typedef struct proc_line {
    char text[96];
    ssize_t length;
} proc_line;

static inline proc_line ring_proc_line(int fd) {
    proc_line line;
    line.length = fd < 0 ? -1 : pread(fd, line.text, sizeof line.text, 0);
    return line;
}

/* The number behind so many blanks of a line in /proc; -1: there is none. */
static inline int64_t ring_proc_number(const proc_line *line, int blanks) {
    const char *text = line->text;
    int64_t number = -1;
    for (ssize_t i = 0; i < line->length; i++) {
        if (text[i] == ' ') blanks--;
        else if (blanks == 0 && text[i] >= '0' && text[i] <= '9')
            number = (number < 0 ? 0 : number) * 10 + (text[i] - '0');
        else if (number >= 0) break;
    }
    return number;
}

static inline void ring_spin_open(ring_spin *spin) {
    cpu_set_t allowed;
    memset(spin, 0, sizeof *spin);
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    spin->cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    spin->load_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    spin->wait_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    spin->gap_ns = UINT64_C(1000000000);
    spin->last_ns = now_ns();
    spin->patience_ns = CALM_MIN_NS;
    proc_line waits = ring_proc_line(spin->wait_fd);
    int64_t turns = ring_proc_number(&waits, 2);
    if (turns >= 0) {
        spin->waited_ns = (uint64_t)ring_proc_number(&waits, 1);
        spin->turns = (uint64_t)turns;
    }
    rhythm_open(&spin->rhythm);
    spin->rests = 1;
}

static inline void ring_spin_close(ring_spin *spin) {
    if (spin->load_fd >= 0) close(spin->load_fd);
    if (spin->wait_fd >= 0) close(spin->wait_fd);
    spin->load_fd = spin->wait_fd = -1;
}

/* A reader that has waited for a core for 3 % of the last moments keeps calm for a while, longer
 * each time: were it to try again at once, its spinning would be what makes it wait. Not counted is
 * what it takes a core to wake up, each time that it was given one; and a few milliseconds for
 * some housekeeper are nothing to sleep for. */
static inline void ring_keep_calm(ring_spin *spin, uint64_t waited_ns, uint64_t turns,
                                  uint64_t now) {
    uint64_t waited = waited_ns - spin->waited_ns, forgiven = (turns - spin->turns) * CORE_WAKES_NS;
    spin->waited_ns = waited_ns;
    spin->turns = turns;
    uint64_t ppm = waited > forgiven ? (waited - forgiven) * 1000000 / (now - spin->load_ns) : 0;
    spin->waiting_ppm = (spin->waiting_ppm * 15 + ppm) / 16;
    if (spin->waiting_ppm > CALM_FROM_PPM) {
        spin->waiting_ppm = 0;
        if (now > spin->calm_ns + CALM_MAX_NS) spin->patience_ns = CALM_MIN_NS;
        else if (now > spin->calm_ns && spin->patience_ns < CALM_MAX_NS) spin->patience_ns *= 2;
        if (now > spin->calm_ns) spin->calm_ns = now + spin->patience_ns;
    }
}

/* "0.20 0.18 0.12 3/80 11206": three threads want to run now, we are one of them.
 * "250671 18231 34": we have run for so many ns, waited for so many, and got a core so often. */
static inline bool ring_crowded(ring_spin *spin, uint64_t now) {
    if (now - spin->load_ns < SPIN_LOOK_AT_LOAD_NS) return spin->crowded;
    proc_line load = ring_proc_line(spin->load_fd), waits = ring_proc_line(spin->wait_fd);
    int64_t runnable = ring_proc_number(&load, 3), turns = ring_proc_number(&waits, 2);
    if (turns >= 0)
        ring_keep_calm(spin, (uint64_t)ring_proc_number(&waits, 1), (uint64_t)turns, now);
    spin->crowded = runnable < 0 || runnable > spin->cores || now < spin->calm_ns;
    spin->load_ns = now;
    return spin->crowded;
}

/* See rhythm_expected; not while spinning has lately been in vain. */
static inline bool ring_expected(const ring_spin *spin, const ring_reader *rd, uint64_t now,
                                 uint64_t *from_ns, uint64_t *until_ns) {
    return !spin->rest && rhythm_expected(&spin->rhythm, rd->passed, now, from_ns, until_ns);
}

/* Before a sleep: the longest there may be, to be awake for the next message (0: nobody knows). */
static inline uint64_t ring_nap_ns(ring_spin *spin, const ring_reader *rd) {
    uint64_t from, until, now = now_ns();
    bool known = ring_expected(spin, rd, now, &from, &until) && now < from;
    rhythm_asleep(&spin->rhythm, known ? from : 0);
    return known ? from - now : 0;
}

/* After a sleep, whatever ended it. True: there is a message. */
static inline bool ring_awake(ring_spin *spin, ring_reader *rd) {
    uint64_t now = now_ns();
    rhythm_awake(&spin->rhythm, now);
    ring_reader_disarm(rd);
    if (!ring_peek(rd)) return false;
    rhythm_arrived(&spin->rhythm, rd->passed, now);
    return true;
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
    uint64_t from, until;
    if (ring_expected(spin, rd, now, &from, &until)) {
        bool due = now >= from && now < until && !ring_crowded(spin, now);
        return due ? until - now : 0;
    }
    if (spin->gap_ns >= SPIN_MAX_NS || ring_crowded(spin, now)) return 0;
    uint64_t budget = spin->gap_ns * 2 + 2000;
    return budget < SPIN_MAX_NS ? budget : SPIN_MAX_NS;
}

/* Wait a moment between two looks. For a rare message the core is offered to others, as its writer
 * may be about to run there, and said to be ours, so that such a writer offers it back. */
static inline void ring_spin_once(const ring_reader *rd, bool rare) {
    for (int i = 0; i < 4; i++) cpu_relax();
    if (!rare) return;
    atomic_store_explicit(&rd->ring->control->spinning_on, sched_getcpu() + 1,
                          memory_order_relaxed);
    sched_yield();
}

/* As long as that pays, and at most limit_ns. True: something came. */
static inline bool ring_spin_for(ring_reader *rd, ring_spin *spin, uint64_t limit_ns) {
    uint64_t start = now_ns(), budget = ring_spin_budget_ns(spin, rd, start);
    if (budget == 0) return false;
    bool in_vain = budget <= limit_ns;
    if (!in_vain) budget = limit_ns;
    bool rare = spin->gap_ns >= SPIN_MAX_NS, found;
    uint64_t now;
    do {
        ring_spin_once(rd, rare);
        found = ring_peek(rd);
        now = now_ns();
    } while (!found && now - start < budget);
    if (rare) atomic_store_explicit(&rd->ring->control->spinning_on, 0, memory_order_relaxed);
    if (found) {
        spin->rests = 1;
        rhythm_arrived(&spin->rhythm, rd->passed, now);
    } else if (in_vain) {
        spin->rest = spin->rests;
        if (spin->rests < 64) spin->rests *= 2;
    }
    return found;
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
        if (ring_spin_for(rd, spin, left)) return RING_READABLE;
        uint64_t nap = ring_nap_ns(spin, rd);
        if (nap && nap < left) left = nap;
        int most_ms = ring_reader_arm(rd);
        if (most_ms == 0) return RING_READABLE;
        if (most_ms > 0 && left > (uint64_t)most_ms * 1000000u)
            left = (uint64_t)most_ms * 1000000u;
        bool interrupted = !doorbell_wait(rd->bell, left) && errno == EINTR;
        if (ring_awake(spin, rd)) return RING_READABLE;
        if (interrupted || atomic_exchange(&rd->nudged, false)) return RING_INTERRUPTED;
    }
}

#endif
