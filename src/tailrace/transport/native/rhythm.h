/* When messages come.
 *
 * Some come in a rhythm: a clock ticks, a sensor reports. A message after a silence, of half the
 * longest distance lately or more, is a beat, and what follows it closely (its own answer coming
 * back by another way, often) belongs to it. When beats have come at even distances, the next is
 * expected, and so are as many followers as the last one had. Everything here is told the time, and
 * asks nobody. */
#ifndef TAILRACE_RHYTHM_H
#define TAILRACE_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

#define BEAT_SILENCE_NS 200000u /* at least */
#define BEAT_LEAD_NS 120000u   /* what a sleeper needs to be up again: a first guess, */
#define BEAT_LEAD_MIN_NS 20000u  /* and the bounds of what it learns */
#define BEAT_LEAD_MAX_NS 500000u
#define BEAT_JITTER_NS 100000u /* distances that differ by more than this are not even */
#define FOLLOW_MARGIN_NS 20000u

typedef struct rhythm {
    uint64_t last_ns;               /* when a wait last ended with a message */
    uint64_t longest_ns;            /* the longest distance lately between such ends */
    uint64_t beat_ns, beat_passed;  /* the beat's first message: when, and its number */
    uint64_t period_ns, jitter_ns;  /* smoothed distance of beats, and what they differ by */
    uint64_t usual, follow_ns;      /* messages of the beat before; how closely they follow */
    uint64_t lead_ns, alarm_ns;     /* how early to get up; when a sleeper wanted to be woken */
    unsigned odd;                   /* how many distances in a row did not fit */
    bool missed;                    /* the last distance that fitted was twice as long */
} rhythm;

static inline void rhythm_open(rhythm *r) {
    *r = (rhythm){.jitter_ns = 2 * BEAT_JITTER_NS, .usual = 1, .lead_ns = BEAT_LEAD_NS, .odd = 2};
}

/* A wait has ended with a message, the `passed`th. A beat that is late makes two odd distances and
 * proves nothing; a third means that there is another rhythm now, or none. One that came while
 * nobody waited is missed: the distance to the next is twice as long. */
static inline void rhythm_arrived(rhythm *r, uint64_t passed, uint64_t now) {
    uint64_t since = r->last_ns ? now - r->last_ns : 0;
    r->last_ns = now;
    r->longest_ns -= r->longest_ns / 4;
    if (since > r->longest_ns) r->longest_ns = since;
    if (since < BEAT_SILENCE_NS || since < r->longest_ns / 2) {
        r->follow_ns = r->follow_ns ? (r->follow_ns * 3 + since) / 4 : since;
        return;
    }
    uint64_t gap = now - r->beat_ns;
    bool missed = !r->missed && gap > r->period_ns + r->period_ns / 2;
    if (missed) gap /= 2;
    uint64_t off = gap > r->period_ns ? gap - r->period_ns : r->period_ns - gap;
    if (off <= 2 * BEAT_JITTER_NS) {
        r->period_ns = (r->period_ns * 7 + gap) / 8;
        r->jitter_ns = (r->jitter_ns * 3 + off) / 4;
        r->odd = 0;
        r->missed = missed;
    } else if (++r->odd > 2) {
        r->period_ns = now - r->beat_ns;
        r->jitter_ns = 2 * BEAT_JITTER_NS; /* three even ones make it small enough */
        r->missed = false;
    }
    r->usual = passed - r->beat_passed;
    r->beat_passed = passed;
    r->beat_ns = now;
}

/* A sleep begins that is to end at `alarm_ns`, for the next beat; 0: it is not for a beat. */
static inline void rhythm_asleep(rhythm *r, uint64_t alarm_ns) { r->alarm_ns = alarm_ns; }

/* A sleep has ended. Seven of eight are to end in time: the lead grows by seven steps when one was
 * longer, and shrinks by one when it was not. (A message that woke the sleeper before its alarm
 * says nothing, and a stall of the machine is one step like any other.) */
static inline void rhythm_awake(rhythm *r, uint64_t now) {
    if (r->alarm_ns && now >= r->alarm_ns) {
        uint64_t step = BEAT_LEAD_NS / 64;
        if (now - r->alarm_ns <= r->lead_ns) r->lead_ns -= step;
        else r->lead_ns += 7 * step;
        if (r->lead_ns < BEAT_LEAD_MIN_NS) r->lead_ns = BEAT_LEAD_MIN_NS;
        if (r->lead_ns > BEAT_LEAD_MAX_NS) r->lead_ns = BEAT_LEAD_MAX_NS;
    }
    r->alarm_ns = 0;
}

/* When to be awake for the next message, and until when; false: nobody knows when it comes. */
static inline bool rhythm_expected(const rhythm *r, uint64_t passed, uint64_t now,
                                   uint64_t *from_ns, uint64_t *until_ns) {
    if (r->jitter_ns > BEAT_JITTER_NS || r->period_ns < BEAT_SILENCE_NS || r->odd ||
        r->last_ns - r->beat_ns > r->period_ns / 2)
        return false;
    uint64_t followed_ns = r->last_ns + 2 * r->follow_ns + FOLLOW_MARGIN_NS;
    if (r->follow_ns < BEAT_SILENCE_NS && passed + 1 - r->beat_passed < r->usual &&
        now < followed_ns) {
        *from_ns = r->last_ns;
        *until_ns = followed_ns;
        return true;
    }
    uint64_t due = r->beat_ns + r->period_ns, margin = 2 * r->jitter_ns;
    uint64_t lead = r->lead_ns < r->period_ns / 4 ? r->lead_ns : r->period_ns / 4;
    if (now > due + r->period_ns / 2) due += r->period_ns;
    *from_ns = due - lead - margin;
    *until_ns = due + BEAT_LEAD_NS / 2 + margin;
    return true;
}

#endif
