# cython: language_level=3
"""Keys that change their instance, one by one or in exchange, while that makes traffic cheaper.

A partition of the key graph comes from elsewhere, and balances the whole of what each part has. Here
each instance of each operator keeps to its own bound, where an edge costs nothing inside a worker,
less inside a node than beyond it, and a key that stays where it was is worth something.
"""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    TRIES = 24  # keys that one of them is tried in exchange for
    NONE = -1

cdef double LITTLE = 1e-9


cdef class Refining:
    """See above. `where` has the instance of each key, and is changed in place.

    Instances are numbered through all operators; those of operator o are `first[o]` to
    `first[o + 1] - 1`, and its keys `start[o]` to `start[o + 1] - 1`. There are edges between keys of
    different operators only.
    """

    cdef const int[::1] first, start, worker, node, before, adjacent
    cdef const int64_t[::1] edges
    cdef const double[::1] weight, edge_weight, most
    cdef const unsigned char[::1] fixed
    cdef int[::1] where
    cdef double[::1] load, at_worker, at_node
    cdef readonly double ring, tcp, keep
    cdef double around
    cdef uint64_t random
    cdef readonly int operators

    def __init__(self, graph, where, load, scratch):
        self.first, self.start = graph.first, graph.start
        self.worker, self.node, self.before = graph.worker, graph.node, graph.before
        self.edges, self.adjacent, self.edge_weight = graph.edges, graph.adjacent, graph.edge_weight
        self.weight, self.most, self.fixed = graph.weight, graph.most, graph.fixed
        self.ring, self.tcp, self.keep = graph.ring, graph.tcp, graph.keep
        self.where, self.load = where, load
        self.at_worker, self.at_node = scratch
        self.operators = self.first.shape[0] - 1
        self.random = 0x9E3779B97F4A7C15ULL
        cdef Py_ssize_t v
        self.load[:] = 0.0
        for v in range(self.where.shape[0]):
            self.load[self.where[v]] += self.weight[v]

    cdef int _look(self, Py_ssize_t v) noexcept:
        """How much a key exchanges with each worker and node."""
        cdef int64_t e
        cdef int there
        self.at_worker[:] = 0.0
        self.at_node[:] = 0.0
        self.around = 0.0
        for e in range(self.edges[v], self.edges[v + 1]):
            there = self.worker[self.where[self.adjacent[e]]]
            self.at_worker[there] += self.edge_weight[e]
            self.at_node[self.node[there]] += self.edge_weight[e]
            self.around += self.edge_weight[e]
        return 0

    cdef inline double _cost(self, Py_ssize_t v, int instance) noexcept:
        """Of a key in an instance, once it was looked at."""
        cdef int worker = self.worker[instance]
        cdef double near = self.at_node[self.node[worker]]
        cdef double cost = self.tcp * (self.around - near) + self.ring * (near - self.at_worker[worker])
        return cost - self.keep if instance == self.before[v] else cost

    cdef inline bint _fits(self, Py_ssize_t v, int instance) noexcept:
        return self.load[instance] + self.weight[v] <= self.most[instance] + LITTLE

    cdef int _move(self, Py_ssize_t v, int instance) noexcept:
        self.load[self.where[v]] -= self.weight[v]
        self.load[instance] += self.weight[v]
        self.where[v] = instance
        return 0

    cdef int _best(self, int operator, Py_ssize_t v, bint fitting) noexcept:
        """The instance where a key costs least, of those where it fits; itself if none is better."""
        cdef int instance, best = self.where[v]
        cdef double cost, least = self._cost(v, best) - LITTLE * (1.0 + self.around)
        for instance in range(self.first[operator], self.first[operator + 1]):
            if instance != self.where[v] and (not fitting or self._fits(v, instance)):
                cost = self._cost(v, instance)
                if cost < least:
                    best, least = instance, cost
        return best

    def improve(self, int passes):
        """Move or exchange keys as long as that saves something; at most so many times around."""
        cdef int operator, best
        cdef int64_t moves
        cdef Py_ssize_t v
        for _ in range(passes):
            moves = 0
            for operator in range(self.operators):
                for v in range(self.start[operator], self.start[operator + 1]):
                    if self.fixed[v]:
                        continue
                    self._look(v)
                    best = self._best(operator, v, True)
                    if best != self.where[v]:
                        self._move(v, best)
                        moves += 1
                        continue
                    best = self._best(operator, v, False)
                    if best != self.where[v]:
                        moves += self._exchange(operator, v, best)
            if not moves:
                return

    cdef int _exchange(self, int operator, Py_ssize_t v, int instance) noexcept:
        """Let a key and one of a full instance change places, if both together save something."""
        cdef int here = self.where[v]
        cdef double gain = self._cost(v, here) - self._cost(v, instance), other
        cdef double room_here = self.most[here] - self.load[here] + self.weight[v] + LITTLE
        cdef double room_there = self.most[instance] - self.load[instance] + LITTLE
        cdef Py_ssize_t u, begin = self.start[operator], count = self.start[operator + 1] - begin
        cdef int tries
        for tries in range(min(<Py_ssize_t>TRIES, count)):
            if count <= TRIES:
                u = begin + tries
            else:
                self.random ^= self.random << 13
                self.random ^= self.random >> 7
                self.random ^= self.random << 17
                u = begin + <Py_ssize_t>(self.random % <uint64_t>count)
            if (
                self.where[u] != instance or self.fixed[u]
                or self.weight[u] > room_here or self.weight[v] - self.weight[u] > room_there
            ):
                continue
            self._look(u)
            other = self._cost(u, instance) - self._cost(u, here)
            if gain + other > LITTLE * (1.0 + self.around + gain):
                self._move(v, instance)
                self._move(u, here)
                return 1
        return 0

    def rebalance(self):
        """Move keys out of instances that have too much, those first that it costs least."""
        cdef int operator, instance, best, other
        cdef double cost, least
        cdef Py_ssize_t v
        for operator in range(self.operators):
            for instance in range(self.first[operator], self.first[operator + 1]):
                if self.load[instance] <= self.most[instance] + LITTLE:
                    continue
                leaving = []
                for v in range(self.start[operator], self.start[operator + 1]):
                    if self.where[v] == instance and not self.fixed[v]:
                        self._look(v)
                        least = self.tcp * self.around + self.ring
                        for other in range(self.first[operator], self.first[operator + 1]):
                            if other != instance and self._fits(v, other):
                                least = min(least, self._cost(v, other))
                        leaving.append(((least - self._cost(v, instance)) / max(self.weight[v], LITTLE), v))
                leaving.sort()
                for _, v in leaving:
                    if self.load[instance] <= self.most[instance] + LITTLE:
                        break
                    self._look(v)
                    best = NONE
                    least = 0.0
                    for other in range(self.first[operator], self.first[operator + 1]):
                        if other != instance and self._fits(v, other):
                            cost = self._cost(v, other)
                            if best == NONE or cost < least:
                                best, least = other, cost
                    if best != NONE:
                        self._move(v, best)

    def excess(self):
        """How much is beyond the bounds, of all instances."""
        cdef Py_ssize_t instance
        cdef double excess = 0.0
        for instance in range(self.load.shape[0]):
            if self.load[instance] > self.most[instance] + LITTLE * (1.0 + self.most[instance]):
                excess += self.load[instance] - self.most[instance]
        return excess

    def cost(self):
        """Of all edges, and of the keys that have moved."""
        cdef Py_ssize_t v
        cdef int64_t e
        cdef int here, there
        cdef double cost = 0.0
        for v in range(self.where.shape[0]):
            if self.where[v] != self.before[v]:
                cost += 2.0 * self.keep
            here = self.worker[self.where[v]]
            for e in range(self.edges[v], self.edges[v + 1]):
                there = self.worker[self.where[self.adjacent[e]]]
                if here != there:
                    cost += self.edge_weight[e] * (self.ring if self.node[here] == self.node[there] else self.tcp)
        return cost / 2.0  # both ends of an edge have it
