# cython: language_level=3
"""The receiving ends: what has come for an instance, kept apart by link, and processed together."""

from collections import deque

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from tailrace.runtime.markers import BEGINNING, add_marker
from tailrace.transport.codec import UnreadableError

from tailrace.runtime.board cimport Boards
from tailrace.runtime.exchange cimport Stamp, near
from tailrace.runtime.hot cimport note
from tailrace.runtime.keypairs cimport PairCounter
from tailrace.transport.jumbo cimport is_run

cdef enum:
    ENOUGH = 2048  # records that are taken from the queue before anything else is looked at
    LARGEST = 4096  # records that are processed in one call

cdef enum:
    LONGEST_WAIT_NS = 20000000
    LEAST_WINDOW = 16
    SAMPLES = 32  # batches by which it is known how long a record takes
    FORGET_NS = 100000000  # after so long without any, that is no longer known

cdef int64_t OVER = 0x7FFFFFFFFFFFFFFF
cdef int64_t AT_ONCE = -OVER


cdef class Inlet:
    """One link: what comes from one worker through one gate."""

    cdef readonly int64_t gate
    cdef readonly int peer, port, stream
    cdef readonly int64_t received, taken, base, waited_ns
    cdef public int64_t unreported, unreported_bytes, watermark
    cdef readonly int64_t window  # how many records the sender should be ahead at most
    cdef int64_t told_window, most_window, oldest_ns, released_ns, way_ns, ways
    cdef public bint ended
    cdef public bint fresh  # of a deployment that is not there yet: it holds nobody up
    cdef public bint reopens  # its sender goes on, be it that it has ended: somebody joins it
    cdef public bint prompt  # whether the sender should hear at once of all that is taken
    cdef readonly bint held
    cdef Py_ssize_t parked  # turns that came up while it was held
    cdef int64_t group  # of messages that are processed together, the last it was in
    cdef Py_ssize_t place  # and where
    cdef readonly object messages
    cdef readonly Queue queue
    cdef object transfer, wait
    cdef public str label  # of its stream

    def __init__(self, gate, int peer, int port, int stream, Queue queue not None, transfer, wait,
                 limits, int64_t base=0):
        """Counts from `base` on, as the lane does."""
        self.received = self.taken = self.base = base
        self.gate = gate
        self.peer = peer
        self.port = port
        self.stream = stream
        self.label = f"stream {stream}"
        self.queue = queue
        self.transfer = transfer.counts  # of the whole stream: from sending to being queued here
        self.wait = wait.counts  # of the whole stream: from there to being taken
        self.messages = deque()
        self.watermark = BEGINNING
        self.most_window = limits.window_records
        self.window = self.told_window = min(limits.first_window_records, limits.window_records)

    def deliver(self, list items not None, int64_t sent_ns, int64_t now_ns, int64_t size_bytes):
        """Queue items that have arrived."""
        cdef int64_t records = records_in(items)
        if not records and self.messages:
            # No credit bounds markers; behind the newest message of their link they take no room.
            last = self.messages[len(self.messages) - 1][0]
            for item in items:
                add_marker(last, item)
            return
        self.received += records
        self.queue.queued += records
        if records:
            note(self.transfer, now_ns - sent_ns, records)
            if self.ways < SAMPLES:
                self.ways += 1
            self.way_ns += (now_ns - sent_ns - self.way_ns) // self.ways
        self.messages.append((items, now_ns, size_bytes, records))
        self.queue.add(self)

    def hold(self):
        """Have what has not been processed wait here from now on, until `release`.

        From within the instance that hears a marker, that is all that comes behind the marker.
        """
        self.held = True

    cdef int put_back(self, list items, int64_t now_ns) except -1:
        """What follows a marker that has this link held was taken too early."""
        cdef int64_t records = records_in(items)
        self.taken -= records
        self.unreported -= records
        self.queue.queued += records
        self.messages.appendleft((items, now_ns, 0, records))
        self.parked += 1
        return 0

    cdef int adapt(self, int64_t waited_ns) except -1:
        """Have the sender be ahead by about as much as is processed here in `LONGEST_WAIT_NS`.

        So a marker, which waits behind all of it, does not wait long, however slow this is.
        """
        if waited_ns > LONGEST_WAIT_NS:
            self.window = max(
                min(<int64_t>LEAST_WINDOW, self.most_window),
                self.window * LONGEST_WAIT_NS // waited_ns,
            )
        elif waited_ns < LONGEST_WAIT_NS // 2 and self.window < self.most_window:
            self.window = min(2 * self.window, self.most_window)
        return 0

    def report(self):
        """The sender is about to hear how many were taken, and of the window."""
        self.unreported = self.unreported_bytes = 0
        self.told_window = self.window

    def release(self, int64_t now_ns=0):
        """What has waited is due; behind what others have sent meanwhile.

        That it was held says nothing about how quick this is: it counts as come now.
        """
        self.held = False
        self.released_ns = now_ns
        while self.parked:
            self.parked -= 1
            self.queue.add(self)

    @property
    def queued(self):
        """Records that have come and are not yet taken."""
        return self.received - self.taken

    @property
    def load(self):
        """What its sender may go by: how long a record takes here and by how much that varies, how
        long it is on its way, how many of other senders are queued, and how long the record takes
        by itself, without what else the worker does meanwhile."""
        cdef Queue queue = self.queue
        others = queue.queued - self.received + self.taken
        return queue.service_ns, queue.spread_ns, self.way_ns, others, queue.own_ns


def deliver(dict inlets not None, int sender, list parcels not None, int64_t sent_ns,
            int64_t now_ns, int64_t size_bytes):
    """Queue the parcels of a jumbo of a worker, each with its share of the size.

    Shares are by records, as the sender counts them: what it waits for must be told by each link.
    To an instance that had ended, and has left, there may still be sent a marker.
    """
    cdef int64_t total = 0
    cdef list counts = []
    for _, items in parcels:
        counts.append(records_in(items))
        total += counts[PyList_GET_SIZE(counts) - 1]
    for (gate, items), count in zip(parcels, counts):
        inlet = inlets.get((gate, sender))
        if inlet is not None:
            (<Inlet>inlet).deliver(
                items, sent_ns, now_ns, size_bytes and max(size_bytes * count // max(total, 1), 1)
            )
        elif count:
            raise KeyError(f"{count} records of worker {sender} for gate {gate}, which is not here")


cdef int64_t records_in(list items) except -1:
    cdef int64_t records = 0
    for item in items:
        if type(item) is tuple:
            records += PyList_GET_SIZE((<tuple>item)[2])
    return records


cdef class Queue:
    """What has come for an instance, in the order in which it came."""

    cdef readonly object order  # inlets, once for each message
    cdef public int64_t peak  # the most records taken together, since somebody set it back
    cdef public PairCounter counter  # who looks at some records as they go by, if anybody does
    cdef public object keeper  # who keeps records back whose state is on its way, while keys move
    cdef readonly int64_t queued  # records, of all links
    cdef readonly int64_t service_ns  # about how long the instance takes for a record,
    cdef int64_t spread_ns  # and how far from that it mostly is
    cdef int64_t own_ns  # about how long a record takes while nothing else is done here
    cdef int64_t samples, ended_ns
    cdef public Boards boards  # where it is said what became of runs, if they are tracked
    cdef public bint leaves  # whether runs end here: what comes is claimed before it is processed
    cdef list filled  # of the whole worker: places of queues that something has come to
    cdef int place
    cdef public bint noted  # whether it is among them
    cdef int64_t group

    def __init__(self):
        self.order = deque()

    def __len__(self):
        return len(self.order)

    def note_in(self, list filled not None, int place):
        """Put this place into that list when something comes, unless it is `noted` there already."""
        self.filled, self.place = filled, place
        self.noted = len(self.order) > 0
        if self.noted:
            filled.append(place)

    cdef int add(self, Inlet inlet) except -1:
        self.order.append(inlet)
        if not self.noted and self.filled is not None:
            self.noted = True
            self.filled.append(self.place)
        return 0

    def take(self, instance, Stamp stamp not None, clock_ns, Py_ssize_t most_messages, list due,
             int64_t due_bytes, int64_t enough=ENOUGH):
        """Have the instance process what is queued, records of several messages together.

        Those of different links are taken in the order of their emission, and put together where
        taking one's time for the other's cannot change a latency by more than a bucket of its
        histogram. So what was cut in parts on its way comes together again. Of a link everything
        stays in its order. Ends early when the instance is congested. Links whose sender should know
        what was taken are added to `due`. Returns the number of records.
        """
        cdef Inlet inlet
        cdef list links, sequences
        cdef int64_t taken = 0, gathered, records, size_bytes, waited_ns, received_ns
        cdef int64_t now_ns = clock_ns()
        order = self.order
        while order and most_messages > 0:
            links, sequences, gathered = [], [], 0
            stamp.now_ns = now_ns
            self.group += 1
            while order and most_messages > 0 and gathered < enough:
                inlet = order.popleft()
                if inlet.held:
                    inlet.parked += 1
                    continue
                most_messages -= 1
                items, received_ns, size_bytes, records = inlet.messages.popleft()
                if inlet.group == self.group:
                    (<list>sequences[inlet.place]).extend(items)
                else:
                    inlet.group = self.group
                    inlet.oldest_ns = max(received_ns, inlet.released_ns)
                    inlet.place = PyList_GET_SIZE(links)
                    links.append(inlet)
                    sequences.append(items)
                gathered += records
                if records:
                    waited_ns = now_ns - received_ns
                    note(inlet.wait, waited_ns, records)
                    inlet.waited_ns += waited_ns * records
                inlet.taken += records
                inlet.unreported += records
                inlet.unreported_bytes += size_bytes
            taken += gathered
            self.queued -= gathered
            if gathered > self.peak:
                self.peak = gathered
            self._process(instance, links, sequences, stamp)
            now_ns = clock_ns()
            if gathered:
                self._learn(now_ns, (<Inlet>links[0]).oldest_ns, gathered)
                self.own_ns += ((now_ns - stamp.now_ns) // gathered - self.own_ns) // self.samples
            for inlet in links:
                inlet.adapt(now_ns - inlet.oldest_ns)
                # By what the sender knows: with a window that it has not heard of, it would wait.
                if (
                    (inlet.prompt and inlet.unreported)
                    or inlet.unreported >= min(inlet.window, inlet.told_window) // 4
                    or inlet.unreported_bytes >= due_bytes
                ):
                    due.append(inlet)
            if instance.congested:
                break
        return taken

    cdef int _learn(self, int64_t now_ns, int64_t received_ns, int64_t records) except -1:
        """So many records are done, of which the first was there from `received_ns` on.

        What counts is the time since then, or since those before were done: other instances of the
        worker may have had their turn in it, and other programs the core.
        """
        cdef int64_t took_ns = (now_ns - max(received_ns, self.ended_ns)) // records
        if received_ns - self.ended_ns > FORGET_NS:
            self.samples = self.spread_ns = 0
            self.service_ns = took_ns
        self.ended_ns = now_ns
        if self.samples < SAMPLES:
            self.samples += 1
        self.spread_ns += (abs(took_ns - self.service_ns) - self.spread_ns) // self.samples
        self.service_ns += (took_ns - self.service_ns) // self.samples
        return 0

    cdef int _process(self, instance, list links, list sequences, Stamp stamp) except -1:
        """Process some items of each link: the oldest of all first, each link's in their order."""
        cdef Py_ssize_t count = PyList_GET_SIZE(links), i, oldest
        cdef Py_ssize_t *at
        cdef int64_t *head_ns
        cdef list batch = None, keys = None, sequence
        cdef bint keyed
        cdef int64_t batch_ns = 0, batch_origin = 0, batched = 0
        cdef int port = -1
        cdef Inlet inlet
        cdef tuple run
        if not count:
            return 0
        at = <Py_ssize_t *>calloc(count, sizeof(Py_ssize_t) + sizeof(int64_t))
        if at is NULL:
            raise MemoryError()
        head_ns = <int64_t *>(at + count)
        try:
            for i in range(count):
                head_ns[i] = self._head_ns(<list>sequences[i], 0)
            while True:
                oldest = 0
                for i in range(1, count):
                    if head_ns[i] < head_ns[oldest]:
                        oldest = i
                if head_ns[oldest] == OVER:
                    break
                inlet, sequence = links[oldest], sequences[oldest]
                item = sequence[at[oldest]]
                at[oldest] += 1
                head_ns[oldest] = self._head_ns(sequence, at[oldest])
                if type(item) is tuple and is_run(<tuple>item):
                    run = <tuple>item
                    keyed = len(run) == 4
                    if batch is not None:
                        if (
                            inlet.port == port and run[1] == batch_origin
                            and keyed == (keys is not None)
                            and PyList_GET_SIZE(batch) < LARGEST
                            and near(run[0], batch_ns, stamp.now_ns)
                        ):
                            batch += run[2]
                            if keyed:
                                keys += run[3]
                            batched += 1
                            continue
                        self._put(instance, port, batch, keys, batch_ns, batch_origin, batched, stamp)
                    batch_ns, batch_origin, batch = run[0], run[1], run[2]
                    keys = <list>run[3] if keyed else None
                    port, batched = inlet.port, 1
                    continue
                if batch is not None:
                    self._put(instance, port, batch, keys, batch_ns, batch_origin, batched, stamp)
                    batch = None
                if type(item) is tuple:
                    stamp.emitted_ns, stamp.origin = item[0], item[1]
                    if not stamp.origin or self._begun(stamp):
                        self._apart(instance, inlet, <tuple>item, stamp)
                    if item[1]:
                        self._ended(item[1], 1, stamp, instance)
                elif self.keeper is not None and self.keeper.keeps_back(inlet):
                    # Records before it wait: to it, and all that follows, they have to come first.
                    inlet.put_back(sequence[at[oldest] - 1:], stamp.now_ns)
                    head_ns[oldest] = OVER
                else:
                    instance.hear(inlet, item)
                    if inlet.held and head_ns[oldest] != OVER:
                        inlet.put_back(sequence[at[oldest]:], stamp.now_ns)
                        head_ns[oldest] = OVER
            if batch is not None:
                self._put(instance, port, batch, keys, batch_ns, batch_origin, batched, stamp)
        finally:
            free(at)
        return 0

    cdef int64_t _head_ns(self, list sequence, Py_ssize_t at) except? -1:
        """When what comes next of a link was emitted. Markers do not wait for older records."""
        if at == PyList_GET_SIZE(sequence):
            return OVER
        item = sequence[at]
        return (<tuple>item)[0] if type(item) is tuple else AT_ONCE

    cdef int _put(self, instance, int port, list batch, list keys, int64_t emitted_ns,
                  int64_t origin, int64_t items, Stamp stamp) except -1:
        stamp.emitted_ns = emitted_ns
        stamp.origin = origin
        if not origin or self._begun(stamp):
            self._hand(instance, port, batch, keys, stamp)
        if origin:
            self._ended(origin, items, stamp, instance)
        return 0

    cdef inline int _hand(self, instance, int port, list batch, list keys, Stamp stamp) except -1:
        put = instance.entries[port]
        if self.keeper is not None:
            batch, keys = self.keeper.admitted(port, batch, keys, stamp.emitted_ns, stamp.origin)
        if not PyList_GET_SIZE(batch):
            pass
        elif self.counter is not None:
            self.counter.put(put, port, batch, keys, stamp.emitted_ns, stamp.origin, stamp)
        elif keys is None:
            put(batch)
        else:
            put(batch, keys)
        return 0

    cdef int _apart(self, instance, Inlet inlet, tuple item, Stamp stamp) except -1:
        """Records with their errors: they could not be routed or decoded. Without one they could."""
        cdef int64_t emitted_ns = stamp.emitted_ns, origin = stamp.origin
        cdef list keys = item[3] if len(item) == 5 else None
        for at, (record, error) in enumerate(item[2]):
            stamp.emitted_ns, stamp.origin = emitted_ns, origin
            if error is None:
                self._hand(instance, inlet.port, [record], keys and [keys[at]], stamp)
                continue
            if isinstance(error, UnreadableError):
                error = UnreadableError(
                    f"what came from worker {inlet.peer} on {inlet.label} cannot be unpickled: {error};"
                    " hand on what pickle can encode, and decode"
                )
            instance.reject([(record, error)])
        return 0

    cdef bint _begun(self, Stamp stamp) except -1:
        """Whether items of an origin are to be processed; where runs end, what follows has none."""
        cdef int64_t origin = stamp.origin
        if self.boards is None:
            return True
        if self.leaves:
            stamp.origin = 0
            return self.boards.claim(origin)
        stamp.produced, stamp.sent_to = 0, -1
        stamp.avoid = self.boards.avoided(origin)
        return True

    cdef int _ended(self, int64_t origin, int64_t items, Stamp stamp, instance) except -1:
        """They are processed or dropped; what became of them is in lanes, and seen by nobody yet."""
        if self.boards is None:
            return 0
        if self.leaves:
            return self.boards.move(origin, -items, -1, instance.clock_ns())
        items = stamp.produced - items
        self.boards.move(origin, items, stamp.sent_to, instance.clock_ns() if items else 0)
        stamp.origin, stamp.avoid = 0, -1
        return 0
