# cython: language_level=3
"""The sending ends of a stream in one worker: a lane for every receiver, and the markers behind all.

All instances of a worker that send on a stream share its exchange. So what goes to one receiver lies
together whoever sent it, and the work per round grows with the receivers, not with the pairs.

The receiver says how many records it has taken from its queue; a lane sends no more than
`window_records` beyond that, and nothing more while what it sent beyond that is `window_bytes` or
more. So a slow instance holds up exactly those who send to it, whatever else the two workers
exchange, and everything in between is bounded.

Only the sender needs exact sizes: it knows the size of what it sent, and forgets it when the records
are taken, small ones together. The receiver just has to report often enough, by records and by bytes.

Shuffled records may be dealt in other ways than in turn (`tailrace.tail.modes`). A *shared* stream
keeps them in one queue until a receiver is about to run dry. Markers stay behind what was queued
before them: watermarks wait until it has been dealt, and before a cut and the end all of it is.
"""

from collections import deque

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t

from tailrace.runtime.markers import BEGINNING, IDLE, End, Watermark, add_marker, unknown
from tailrace.tail.late import Late
from tailrace.tail.modes import OFF, SHARED, check_tail, policy_of

cdef enum:
    FEW_LANES = 8
    FIRST_RECORDS = 64
    ANNOUNCE_NS = 1000000  # how often many receivers without records hear of time
    SHARE_NS = 250000  # of work: so much of a batch stays together where a receiver is chosen
    SAMPLES = 32  # by which it is known how long it takes to hear of a record
    UNKNOWN_NS = 100000  # what a record counts for while nobody knows how long it takes
    TOGETHER = 1024  # small messages are remembered as one while they have less of the window

cdef int64_t _IDLE = IDLE
cdef int64_t PLENTY = 1 << 40
cdef int64_t _BEGINNING = BEGINNING


cdef class Stamp:
    """Of what an instance is processing: when its source emitted it, its origin, and what time it is.

    The origin is a number that a source gave to the batch; 0: nobody asked for it.
    """

    def __cinit__(self):
        self.avoid = -1


cdef class Lane:
    """What is gathered for one receiver until the worker's round ends, and its credit."""

    def __init__(self, gate, int peer, int index, Exchange exchange not None, int64_t base=0):
        """Counts from `base` on: what is told of a link of before, by the same gate, is less."""
        self.sent = self.base = base
        self.gate = gate
        self.peer = peer
        self.index = index
        self.exchange = exchange
        self.items = []
        # How large records are is known when the first have been sent.
        self.most_records = min(exchange.gathered_records, FIRST_RECORDS)
        self.window = exchange.first_window
        self.sizes = deque()  # of what was sent, together: `sent` after it, and bytes
        self.blocked = []  # the sets of those who wait until this is sent
        self.serial = -1
        self.told_ns = _BEGINNING
        self.here = peer == exchange.rank
        self.near = self.here or exchange.is_near(peer)

    @property
    def label(self):
        """Of the stream."""
        return self.exchange.label

    @property
    def waiting(self):
        """Records that are gathered for the receiver, on the way, or not yet taken there."""
        return self.records + self.credit_used

    @property
    def taken(self):
        """Records that the receiver has taken, ever."""
        return self.sent - self.credit_used

    @property
    def fill(self):
        """How much of its window is in use; 1: all, or nothing more may be gathered for it."""
        if not self.open or self.records >= self.most_records:
            return 1.0
        return self.credit_used / <double>self.window

    @property
    def work_ns(self):
        """How much work its worker has been given by all of this node; -1: nobody knows."""
        cdef Loads loads = self.exchange.loads
        return -1 if loads is None or not self.near else loads.of(self.peer)

    cdef int publish(self) except -1:
        """Have all of this node know how much work is under way here."""
        cdef Exchange exchange = self.exchange
        cdef int64_t work_ns = 0
        if exchange.loads is None or not self.near:
            return 0
        if exchange.dealing:
            work_ns = (self.records + self.credit_used) * (self.service_ns or UNKNOWN_NS)
        if work_ns != self.published_ns:
            exchange.loads.add(self.peer, work_ns - self.published_ns)
            self.published_ns = work_ns
        return 0

    cdef int measure(self, int64_t now_ns) except -1:
        """What is under way is about to change."""
        self.under_way_ns += self.credit_used * (now_ns - self.measured_ns)
        self.measured_ns = now_ns
        return 0

    cdef int open_tail(self, Stamp stamp, int64_t serial) except -1:
        """Have records of this stamp added to a run of about the same time, or begin another.

        Runs are in the order of their emission, as far as no sender has put out a later record
        before an earlier one: each sender's records stay in their order. Those that are tracked by
        an origin are never put before others, nor taken for what was emitted at another time.
        """
        cdef int64_t run_ns
        cdef Py_ssize_t at
        cdef tuple run
        cdef Exchange exchange = self.exchange
        self.serial = serial
        if self.version != exchange.version:
            exchange.sync(self)
        if not self.touched:
            exchange.touch(self)
        if self.segment != exchange.segment:
            self.segment = exchange.segment
            self.segment_start = PyList_GET_SIZE(self.items)
        at = PyList_GET_SIZE(self.items)
        while at > self.segment_start:
            run = <tuple>self.items[at - 1]
            run_ns = run[0]
            if stamp.origin == <int64_t>run[1] and (
                stamp.emitted_ns == run_ns
                or (not stamp.origin and near(stamp.emitted_ns, run_ns, stamp.now_ns))
            ):
                self.tail = <list>run[2]
                self.tail_keys = <list>run[3] if exchange.keyed else None
                self.tail_at = at - 1
                return 0
            if stamp.emitted_ns >= run_ns or stamp.origin:
                break
            at -= 1
        self.tail = []
        self.tail_at = at
        if exchange.keyed:
            self.tail_keys = []
            run = (stamp.emitted_ns, stamp.origin, self.tail, self.tail_keys)
        else:
            run = (stamp.emitted_ns, stamp.origin, self.tail)
        self.items.insert(at, run)
        if stamp.origin:
            stamp.produced += 1
            stamp.sent_to = self.peer
        return 0

    cdef int put_one(self, record, key, Stamp stamp, int64_t serial) except -1:
        if self.serial != serial:
            self.open_tail(stamp, serial)
        self.tail.append(record)
        if self.tail_keys is not None:
            self.tail_keys.append(key)
        self.records += 1
        return 0

    cdef int put_list(self, list records, Stamp stamp) except -1:
        """All of a list, which belongs to the lane from now on; of a stream without keys."""
        cdef tuple run
        assert not self.exchange.keyed
        self.open_tail(stamp, -1)
        if PyList_GET_SIZE(self.tail):
            self.tail += records
        else:
            self.tail = records
            run = <tuple>self.items[self.tail_at]
            self.items[self.tail_at] = (run[0], run[1], records)
        self.records += PyList_GET_SIZE(records)
        return 0

    def reject(self, record, error, Stamp stamp not None):
        """Gather a record that cannot be routed, with the error, for the receiver to deal with."""
        if self.version != self.exchange.version:
            self.exchange.sync(self)
        self.items.append((stamp.emitted_ns, stamp.origin, [(record, error)], True))
        if stamp.origin:
            stamp.produced += 1
            stamp.sent_to = self.peer
        self.records += 1
        self.seal()
        self.touch()

    def put(self, list records not None, Stamp stamp not None):
        """Gather records, in a list that belongs to the lane from now on."""
        self.put_list(records, stamp)

    cdef int block(self, set full) except -1:
        """Have somebody wait until what is gathered here has been sent."""
        if self not in full:
            full.add(self)
            self.blocked.append(full)
        return 0

    def mark(self, marker):
        """Put a marker behind the records gathered so far."""
        add_marker(self.items, marker)
        self.seal()
        self.touch()

    def seal(self):
        """What comes from now on stays behind all that is there."""
        self.tail = None
        self.serial = -1
        self.segment_start = PyList_GET_SIZE(self.items)

    def touch(self):
        """Have the next flush look at it."""
        if not self.touched:
            self.exchange.touch(self)

    def drop(self, list kept not None):
        """Go on with these items instead of those gathered: some records cannot be sent."""
        self.items = kept
        self.records = sum([len(item[2]) for item in kept if type(item) is tuple])
        self.seal()
        if self.exchange.dealing:
            self.publish()
        if self.exchange.queued:
            self.exchange.deal(self.exchange.clock_ns())

    def untouch(self):
        """A flush looks at it now."""
        self.touched = False

    @property
    def open(self):
        """Whether the receiver may be sent more."""
        return (
            self.credit_used < self.window
            and self.bytes_used < self.exchange.window_bytes
        )

    def take(self, int64_t size_bytes=0):
        """All that was gathered, when it has been sent; to another worker, in that many bytes."""
        cdef int64_t charged, now_ns, window_bytes = self.exchange.window_bytes
        items = self.items
        self.items = []
        self.takes += 1
        if self.exchange.dealing:
            now_ns = self.exchange.clock_ns()
            self.measure(now_ns)
            if not self.credit_used and self.records:
                self.probe_ns, self.probe_records = now_ns, self.records
                self.probe_sent = self.sent + self.records
        if self.records:
            self.messages += 1
        self.sent += self.records
        self.credit_used += self.records
        if not size_bytes:
            self.most_records = min(self.exchange.gathered_records, self.window)
        elif self.records:
            self.bytes_sent += size_bytes
            # The receiver reports each quarter of the window. Nothing may count as the whole of it,
            # or the sender would wait for a report that is not due.
            charged = min(size_bytes, window_bytes - window_bytes // 4)
            self.bytes_used += charged
            if self.newest_bytes and self.newest_bytes + charged > window_bytes // TOGETHER:
                self.sizes.append((self.newest, self.newest_bytes))
                self.newest_bytes = 0
            self.newest = self.sent
            self.newest_bytes += charged
            # Of large records fewer are gathered, so that a message stays below the window.
            self.most_records = min(
                max(window_bytes * self.records // size_bytes, 1),
                min(self.exchange.gathered_records, self.window),
            )
        self.records = 0
        self.seal()
        if self.blocked:
            for full in self.blocked:
                full.discard(self)
            self.blocked.clear()
        return items

    def credit(self, int64_t taken, int64_t window, tuple load=(0, 0, 0, 0, 0)):
        """The receiver has taken that many since the start; an older report changes nothing.

        From now on it wants to be sent no more than `window` beyond that. For its load see
        `Inlet.load`.
        """
        cdef int64_t now_ns = 0, turn_ns, own_ns
        if window != self.window:
            self.window = window
            self.exchange.narrow()
        if self.exchange.dealing:
            now_ns = self.exchange.clock_ns()
            self.measure(now_ns)
            self.heard_ns = now_ns
            self.service_ns, self.spread_ns, self.way_ns, self.others, own_ns = load
            if own_ns and self.near and self.exchange.loads is not None:
                # What else its worker has to do is known better than by how long it takes here.
                self.service_ns, self.spread_ns = own_ns, 0
            if self.probe_sent and taken >= self.probe_sent:
                turn_ns = now_ns - self.probe_ns - self.service_ns * self.probe_records
                self.probes = min(self.probes + 1, SAMPLES)
                self.turn_ns += (turn_ns - self.turn_ns) // self.probes
                self.probe_sent = 0
        self.credit_used = min(self.credit_used, self.sent - taken)
        if self.exchange.dealing:
            self.publish()
        sizes = self.sizes
        while sizes and sizes[0][0] <= taken:
            self.bytes_used -= sizes.popleft()[1]
        if self.newest <= taken:
            self.bytes_used -= self.newest_bytes
            self.newest_bytes = 0
        if self.items and not self.touched:
            self.exchange.touch(self)
        if self.exchange.queued:
            self.exchange.deal(now_ns)


cdef class Exchange:
    """See above. Its senders are routers, one for each sending instance of this worker."""

    def __init__(self, int stream, str label not None, limits, list touched not None, *,
                 int rank=-1, is_near=lambda peer: True, clock_ns=int, bint stays=False,
                 bint keyed=False, Loads loads=None):
        """Of worker `rank`, by whose clock it goes if it measures anything.

        `is_near` says which others are of the same node, and `loads` what these have to do.
        `stays`: what is here goes before others. `keyed`: by a key function, so that records go
        with what it gave.
        """
        self.keyed = keyed
        self.rank = rank
        self.is_near = is_near
        self.clock_ns = clock_ns
        self.stays = stays
        self.loads = loads
        self.mode = OFF
        self.waiters = []
        self.dealt = Stamp()
        self.stream = stream
        self.label = label
        self.window_records = limits.window_records
        self.first_window = min(limits.first_window_records, limits.window_records)
        self.window_bytes = limits.window_bytes
        self.gathered_records = limits.gathered_records
        self.lanes = []
        self.senders = []
        self.touched = touched
        self.targets = {}  # what routers have found out about keys
        self.watermark = _BEGINNING

    def lay(self, gates, int64_t base=0):
        """Have lanes to these gates, in this order; those that were there stay as they are.

        A receiver that is new hears what time it is, and of the end if that has come before it.
        Returns the lanes that were there and are no more; what they hold has to be sent yet.
        """
        cdef Lane lane
        known = {lane.gate: lane for lane in self.lanes}
        self.lanes = []
        for index, gate in enumerate(gates):
            lane = known.pop(gate.number, None)
            if lane is None:
                lane = Lane(gate.number, gate.worker, index, self, base)
                if base or self.end is not None:
                    self.sync(lane)
                if self.end is not None:
                    lane.mark(self.end)
            lane.index = index
            self.lanes.append(lane)
        self.narrow()
        self.targets.clear()
        for sender in self.senders:
            sender.relaid()
        if self.queued:
            self.deal(self.clock_ns())
        if self.loads is not None:
            for lane in known.values():
                self.loads.add(lane.peer, -lane.published_ns)
                lane.published_ns = 0
        return list(known.values())

    # ---- other ways to deal than in turn ----

    def deal_by(self, mode):
        """Deal shuffled records in another way from now on."""
        cdef Lane lane
        if mode == self.mode:
            return
        self.deal_all()
        self.mode = check_tail(mode)
        self.dealing = mode != OFF
        self.policy = policy_of(mode, self.stream << 16 | (self.rank & 0xFFFF), stays=self.stays)
        self.late = Late() if mode == SHARED else None
        self.queue = deque() if mode == SHARED else None
        now_ns = self.clock_ns()
        for lane in self.lanes:
            lane.measured_ns = lane.heard_ns = now_ns
            lane.probe_sent = 0
            lane.publish()
        for sender in self.senders:
            sender.start_even()

    cdef int64_t share(self) except -1:
        """How many records of a batch stay together; 0: nobody knows yet."""
        cdef Lane lane
        cdef int64_t fastest_ns = 0
        for lane in self.lanes:
            if lane.service_ns and (not fastest_ns or lane.service_ns < fastest_ns):
                fastest_ns = lane.service_ns
        return max(SHARE_NS // fastest_ns, 1) if fastest_ns else 0

    cdef int choose(self, int64_t now_ns) except -1:
        """The place of the lane for the next share."""
        return self.policy.choose(self.lanes, now_ns)

    cdef int enqueue(self, sender, list records, Stamp stamp, set full) except -1:
        """Have records wait until somebody is free; and the sender, if they are many."""
        self.queue.append([sender, stamp.emitted_ns, stamp.origin, records, 0])
        self.queued += PyList_GET_SIZE(records)
        self.deal(stamp.now_ns)
        if self.queued >= self.most_queued() and self not in full:
            full.add(self)
            self.waiters.append(full)
        return 0

    cdef int64_t most_queued(self) except -1:
        """With so many records in the queue, senders wait: as many as lanes would gather."""
        cdef Lane lane
        cdef int64_t most = 0
        for lane in self.lanes:
            most += lane.most_records
        return max(most, 1)

    cdef int deal(self, int64_t now_ns) except -1:
        """Hand what is queued to those that are about to run dry."""
        while self.queue:
            if type(self.queue[0]) is Watermark:
                self._move(self.queue.popleft())
                continue
            found = self.late.next(self.lanes, self.queued, now_ns)
            if found is None:
                return 0
            self.hand(<Lane>self.lanes[found[0]], found[1], now_ns)
        return 0

    def deal_all(self):
        """Hand out all that is queued, to whoever will be done with it soonest."""
        cdef int64_t now_ns
        if not self.queue:
            return
        now_ns = self.clock_ns()
        while self.queue:
            if type(self.queue[0]) is Watermark:
                self._move(self.queue.popleft())
            else:
                self.hand(<Lane>self.lanes[self.choose(now_ns)], max(self.share(), 1), now_ns)

    cdef int hand(self, Lane lane, int64_t most, int64_t now_ns) except -1:
        """Gather for a lane what was queued first, up to so many records."""
        cdef list entry = self.queue[0], records = entry[3]
        cdef Py_ssize_t at = entry[4], size = PyList_GET_SIZE(records), end = min(at + most, size)
        if end == size:
            self.queue.popleft()
        else:
            entry[4] = end
        if at or end < size:
            records = records[at:end]
        self.queued -= end - at
        self.dealt.emitted_ns, self.dealt.origin, self.dealt.now_ns = entry[1], entry[2], now_ns
        if self.dealt.emitted_ns < self.dealt_ns:
            self.segment += 1  # whoever sent both: what went before stays before
        self.dealt_ns = self.dealt.emitted_ns
        lane.put_list(records, self.dealt)
        lane.publish()
        entry[0].dealt(lane.index, end - at)
        if self.waiters and self.queued < self.most_queued():
            for full in self.waiters:
                full.discard(self)
            self.waiters.clear()
        return 0

    cdef int narrow(self) except -1:
        """The window of a receiver has changed."""
        cdef Lane lane
        cdef int64_t least = self.window_records
        for lane in self.lanes:
            least = min(least, lane.window)
        # Records are dealt to all: so many until the slowest has its fill.
        self.room = min(least, PLENTY) * max(PyList_GET_SIZE(self.lanes), 1)
        return 0

    cdef int touch(self, Lane lane) except -1:
        lane.touched = True
        self.touched.append(lane)
        return 0

    cdef int sync(self, Lane lane) except -1:
        """Put behind what a lane holds what there is to say about time."""
        lane.version = self.version
        if lane.told_ns < self.watermark or (lane.told_idle and not self.idle):
            lane.told_ns = self.watermark
            lane.told_idle = False
            lane.mark(Watermark(self.watermark, self.emitted_ns))
        if self.idle and not lane.told_idle:
            lane.told_idle = True
            lane.mark(Watermark(_IDLE, self.emitted_ns))
        return 0

    def mark(self, sender, marker):
        """One of the senders has put a marker behind what it sent: tell what follows for all."""
        kind = type(marker)
        if kind is Watermark:
            sender.watermark = marker.time_ns
            self._hear(marker.emitted_ns)
        elif kind is End:
            sender.ended = True
            self._leave(marker)
        else:
            raise unknown(marker)

    def cut(self, marker):
        """Put a marker behind what all senders have sent; they are all at the same point."""
        cdef Lane lane
        if self.end is None:
            self.deal_all()
            for lane in self.lanes:
                self.sync(lane)
                lane.mark(marker)

    def reopen(self):
        """One is about to join: there will be more, though all others may have ended."""
        self.end = None

    def forget_time(self):
        """One has joined that may be behind the others: say anew what time it is.

        Receivers have forgotten, too, what they were told.
        """
        cdef Lane lane
        self.watermark = _BEGINNING
        self.idle = False
        for lane in self.lanes:
            lane.told_ns = _BEGINNING
            lane.told_idle = False
        self._hear(self.emitted_ns)

    def lose(self, sender):
        """A sender goes on elsewhere. Others here, if there are any, go on without it."""
        self.senders.remove(sender)
        if self.senders and self.end is None:
            self._leave(End(None))

    def _leave(self, end):
        cdef Lane lane
        if any([not one.ended for one in self.senders]):
            self._hear(self.emitted_ns if end.emitted_ns is None else end.emitted_ns)
            return
        self.deal_all()
        for lane in self.lanes:
            self.sync(lane)
            lane.mark(end)
        self.end = end
        self.pending = False

    def _hear(self, int64_t emitted_ns):
        """Time may have moved on, to that of the slowest sender."""
        cdef int64_t lowest = _IDLE, known
        for sender in self.senders:
            if not sender.ended:
                known = sender.watermark
                if known < lowest:
                    lowest = known
        told = Watermark(lowest, emitted_ns)
        if not self.queue:
            self._move(told)
        else:  # behind the records that it follows
            if type(self.queue[len(self.queue) - 1]) is Watermark:
                self.queue.pop()
            self.queue.append(told)

    def _move(self, told):
        """All that was sent before this watermark has been dealt."""
        cdef int64_t lowest = told.time_ns
        if lowest == _IDLE:
            if self.idle:
                return
            self.idle = True
        elif lowest > self.watermark or self.idle:
            self.idle = False
            self.watermark = max(self.watermark, lowest)
        else:
            return
        self.emitted_ns = told.emitted_ns
        self.version += 1
        self.pending = True

    def announce(self, int64_t now_ns):
        """Tell all receivers of time that has moved on, unless they are many and heard of it lately."""
        cdef Lane lane
        if not self.pending or now_ns < self.due_ns():
            return
        self.pending = False
        self.announced_ns = now_ns
        for lane in self.lanes:
            if lane.version != self.version:
                self.sync(lane)

    def due_ns(self):
        """From when on all receivers may be told of time."""
        return 0 if PyList_GET_SIZE(self.lanes) <= FEW_LANES else self.announced_ns + ANNOUNCE_NS
