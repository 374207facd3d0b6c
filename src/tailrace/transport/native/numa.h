/* Where a ring's memory lies, on machines with several NUMA nodes. By the system call itself, so
 * that nothing needs to be installed for it. */
#ifndef TAILRACE_NUMA_H
#define TAILRACE_NUMA_H

#include <linux/mempolicy.h>
#include <sys/syscall.h>

#include "members.h"

#define NUMA_MOST_NODES 1024

/* Pages from now on, and those that nobody else has mapped yet, lie on that node. It is a wish: where
 * the node has no memory left, the system takes another. The policy belongs to the memory and not to
 * the process, so it holds for whoever writes first. 0, or -errno. */
static inline int ring_on_node(ring *r, unsigned node) {
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[NUMA_MOST_NODES / BITS] = {0};
    if (node >= NUMA_MOST_NODES) return -EINVAL;
    nodes[node / BITS] = 1ul << node % BITS;
    long done = syscall(SYS_mbind, r->control, ring_total_bytes(r->capacity), MPOL_PREFERRED, nodes,
                        (unsigned long)NUMA_MOST_NODES + 1, MPOL_MF_MOVE);
    return done < 0 ? -errno : 0;
}

#endif
