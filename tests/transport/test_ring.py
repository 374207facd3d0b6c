"""What one process sees of a ring: messages, limits, counters, life cycle."""

import os
import pickle
import struct
import tempfile
import threading

import pyarrow
import pytest

from tailrace.transport.ring import Doorbell, Message, Reader, Ring, RingError, Writer, copies_of
from tailrace.transport.ring.memory import Memory
from tests.transport.draining import drained, received
from tests.transport.slow_writer import SlowWriter


def filled(writer: Writer, payload: bytes) -> int:
    """Fill the ring; return with how many messages."""
    sent = 0
    while writer.send(payload, wait=False):
        sent += 1
    return sent


def taken(reader: Reader) -> Message:
    message = reader.read()
    assert message is not None
    return message


def test_a_ring_whose_memory_comes_with_its_messages_is_a_ring_like_others() -> None:
    created = Ring.create(1 << 20, populate=False)
    ring = Ring.attach(created.address, populate=False)
    with created, created.reader() as reader, ring, ring.writer() as writer:
        for _ in range(3):
            sent = filled(writer, bytes(10_000))
            assert [len(payload) for _, _, payload in drained(reader)] == [10_000] * sent


def test_a_message_arrives_with_its_target_and_kind() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        assert reader.read() is None
        writer.send(b"one", target=7, kind=3)
        writer.send(bytearray(b"two"))
        writer.send(memoryview(b"three"), target=2**32 - 1, kind=15)
        assert drained(reader) == [(7, 3, b"one"), (0, 0, b"two"), (2**32 - 1, 15, b"three")]
        assert reader.read_bytes() is None


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 2047, 2048])
def test_every_length_up_to_half_the_ring_goes_round_and_round(length: int) -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        for lap in range(200):
            payload = bytes([lap % 256]) * length
            writer.send(payload)
            writer.send(b"between")
            assert received(reader) == [payload, b"between"]


def test_a_ring_whose_reader_keeps_up_uses_only_its_beginning() -> None:
    warm = 256 << 10
    with Ring.create(1 << 20) as ring, ring.reader() as reader, ring.writer() as writer:
        places = set()
        for number in range(27 * 10):  # 27 are more than 256 KB: the next one starts over
            writer.send(number.to_bytes(2) * 5_000)
            with taken(reader) as message:
                assert bytes(memoryview(message)) == number.to_bytes(2) * 5_000
                places.add(pyarrow.py_buffer(message).address)
            assert reader.read() is None
        assert max(places) - min(places) <= warm
        # When it starts over and nobody reads, there is room for that much; when the reader has
        # looked, for a whole ring.
        sent = filled(writer, bytes(10_000))
        assert warm < sent * 10_000 < warm + 20_000
        assert len(received(reader)) == sent
        assert writer.send(b"starts over")
        assert ring.counters()["fill"] < 0.01
        assert reader.spin(0)
        sent = filled(writer, bytes(10_000))
        assert sent * 10_000 > (1 << 20) - 30_000
        assert [len(payload) for payload in received(reader)] == [11] + sent * [10_000]


def test_a_message_over_half_the_ring_is_refused_with_the_limit() -> None:
    with Ring.create(4096) as ring, ring.writer() as writer:
        with pytest.raises(ValueError, match="message is 2049 bytes; this ring takes 0 to 2048"):
            writer.send(bytes(2049))
        assert ring.max_message_bytes == 2048


def test_a_full_ring_says_so_when_asked_not_to_wait_and_takes_nothing() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        sent = 0
        while writer.send(b"x" * 64, wait=False):
            sent += 1
        assert sent == 64
        assert ring.counters()["fill"] == 1.0
        assert len(received(reader)) == 64
        assert writer.send(b"again", wait=False)
        assert received(reader) == [b"again"]
        assert ring.counters()["full_waits"] == 1


def test_a_refused_writer_is_rung_when_there_is_room() -> None:
    bell = Doorbell()
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer(bell) as writer:
        while writer.send(b"x" * 64, wait=False):
            pass
        assert not rung(bell)
        received(reader)
        assert reader.read() is None
        assert rung(bell)


def rung(bell: Doorbell) -> bool:
    import select

    return bool(select.select([bell.fileno()], [], [], 0)[0])


def test_a_sleeping_reader_is_rung_once_and_an_awake_one_never() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        writer.send(b"awake")
        assert not rung(reader.doorbell)
        assert reader.arm() == 0, "there is a message: no sleep"
        received(reader)
        assert reader.arm() == -1
        writer.send(b"wakes")
        writer.send(b"no need")
        assert rung(reader.doorbell)
        reader.doorbell.clear()
        assert not rung(reader.doorbell)
        reader.disarm()
        assert ring.counters()["wakes"] == 1


def test_a_batch_is_many_records_in_one_message() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        records = [b"", b"a", b"longer than the others", bytes(100)]
        writer.send_batch([*records])
        with taken(reader) as message:
            assert message.kind == 1
            assert copies_of(message) == records
        assert copies_of(b"") == []


@pytest.mark.parametrize("broken", [b"\x01\x00", struct.pack("<I", 5) + b"four"])
def test_a_batch_cut_short_is_an_error_and_not_a_shorter_batch(broken: bytes) -> None:
    with pytest.raises(ValueError, match="batch"):
        copies_of(broken)


def test_parts_become_one_message() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        writer.send_parts([b"one ", bytearray(b"two "), memoryview(b"three")], target=4, kind=2)
        assert drained(reader) == [(4, 2, b"one two three")]
        with pytest.raises(TypeError):
            writer.send_parts([b"not", "bytes"])  # type: ignore[list-item]
        writer.send(b"goes on")
        assert received(reader) == [b"goes on"]


def test_a_slow_message_is_overtaken_then_skipped_and_never_lost() -> None:
    with (
        Ring.create(4096, window=4) as ring,
        ring.reader() as reader,
        SlowWriter(ring.address) as slow,
        ring.writer() as quick,
    ):
        slow.reserve(b"late")
        for turn in range(3):
            quick.send(b"%d" % turn)
        assert received(reader) == [b"0", b"1", b"2"]
        assert slow.commit(), "within the window it is delivered"
        assert received(reader) == [b"late"]
        slow.reserve(b"too late")
        for turn in range(5):
            quick.send(b"%d" % turn)
        assert len(received(reader)) == 5
        assert reader.read() is None
        assert not slow.commit(), "the window is full: skipped, and the writer knows"
        slow.send(b"anew")
        assert received(reader) == [b"anew"]
        counters = ring.counters()
        assert (counters["skipped"], counters["resent"], counters["lost"]) == (1, 1, 0)


def test_one_reader_unless_shared() -> None:
    with Ring.create(4096) as ring, ring.reader(), pytest.raises(RingError, match="living reader"):
        ring.reader()
    with (
        Ring.create(4096, shared=True) as ring,
        ring.reader() as one,
        ring.reader() as other,
        ring.writer() as writer,
    ):
        for i in range(4):
            writer.send(b"%d" % i)
        assert [one.read_bytes(), other.read_bytes(), one.read_bytes(), other.read_bytes()] == [
            b"0", b"1", b"2", b"3",
        ]  # fmt: skip
        assert one.read() is None


def test_a_shared_ring_gives_memory_back_in_whatever_order_readers_finish() -> None:
    with (
        Ring.create(4096, shared=True) as ring,
        ring.reader() as one,
        ring.reader() as other,
        ring.writer() as writer,
    ):
        for turn in range(500):
            writer.send(b"%d" % turn)
            writer.send(b"%d" % turn)
            first, second = one.read(), other.read()
            assert first is not None
            assert second is not None
            (first if turn % 2 else second).release()
            (second if turn % 2 else first).release()
        assert one.read() is None
        assert ring.counters()["fill"] == 0.0


def test_a_reader_that_follows_another_goes_on_where_memory_was_freed() -> None:
    with Ring.create(4096) as ring, ring.writer() as writer:
        with ring.reader() as reader:
            writer.send(b"read")
            writer.send(b"not read")
            assert reader.read_bytes() == b"read"
        with ring.reader() as reader:
            assert received(reader) == [b"not read"]


def test_256_members_and_not_one_more_and_a_closed_place_is_free_again() -> None:
    with Ring.create(4096) as ring:
        writers = [ring.writer() for _ in range(256)]
        with pytest.raises(RingError, match="all 256 places are taken"):
            ring.writer()
        writers.pop().close()
        with ring.reader() as reader:
            writers[200].send(b"from a high place")
            assert received(reader) == [b"from a high place"]


def test_a_writer_closed_by_another_thread_is_gone_all_the_same() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader:
        writer = ring.writer()
        writer.send(b"before")
        thread = threading.Thread(target=writer.close)
        thread.start()
        thread.join()
        with pytest.raises(RingError, match="closed"):
            writer.send(b"after")
        assert received(reader) == [b"before"]


@pytest.mark.parametrize(
    ("size", "window", "message"),
    [
        (100, 64, "ring size is 100 bytes; it must be 4096 to 67108864"),
        (2**27, 64, "ring size is 134217728 bytes"),
        (4096, 0, "window is 0; it must be at least 1"),
    ],
)
def test_a_ring_that_cannot_be_is_refused_with_values(size: int, window: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ring.create(size, window=window)


def test_use_after_close_is_refused() -> None:
    ring = Ring.create(4096)
    reader, writer = ring.reader(), ring.writer()
    ring.close()
    writer.send(b"members go on without the ring object")
    assert len(received(reader)) == 1
    writer.close()
    reader.close()
    for use in (ring.reader, ring.counters, reader.read, lambda: writer.send(b"")):
        with pytest.raises(RingError, match="closed"):
            use()


def test_attach_refuses_what_is_not_this_ring() -> None:
    with Ring.create(4096) as ring:
        pid, descriptor, nonce = ring.address.split("/")
        with pytest.raises(RingError, match="not the address of a ring"):
            Ring.attach("nonsense")
        with pytest.raises(RingError, match="another ring is there"):
            Ring.attach(f"{pid}/{descriptor}/{'0' * 32}")
        with pytest.raises(RingError, match="cannot be reached"):
            Ring.attach(f"{pid}/999/{nonce}")
        with tempfile.TemporaryFile() as other:
            there = f"{pid}/{other.fileno()}/{nonce}"
            with pytest.raises(RingError, match="not a ring"):
                Ring.attach(there)
            other.truncate(200_000)
            with pytest.raises(RingError, match="not a ring"):
                Ring.attach(there)
            source = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
            head = os.pread(source, 200_000, 0)
            os.close(source)
            other.write(head[:8] + struct.pack("<I", 99) + head[12:])
            other.flush()
            with pytest.raises(RingError, match="layout version 99; this process speaks 2"):
                Ring.attach(there)
            other.seek(0)
            other.write(head + bytes(64))
            other.flush()
            with pytest.raises(RingError, match="not the size it says"):
                Ring.attach(there)


def test_the_memory_is_private_to_the_user_and_cannot_be_cut_short() -> None:
    with Ring.create(4096) as ring:
        descriptor = int(ring.address.split("/")[1])
        assert os.fstat(descriptor).st_mode & 0o777 == 0o600
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)


def test_the_longest_message_of_the_largest_ring() -> None:
    with Ring.create(64 << 20) as ring, ring.reader() as reader, ring.writer() as writer:
        longest = bytes(ring.max_message_bytes - 1) + b"!"
        for _ in range(3):
            writer.send(longest)
            writer.send(b"short")
            assert received(reader) == [longest, b"short"]


def test_other_threads_are_refused() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        refused = []

        def use() -> None:
            for action in (lambda: writer.send(b"x"), reader.read, lambda: reader.wait(0)):
                with pytest.raises(RingError, match="another thread"):
                    action()
                refused.append(action)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert len(refused) == 3


def test_members_cannot_be_made_wrongly() -> None:
    for no_memory in (None, Memory()):
        with pytest.raises(RingError, match="the ring is closed"):
            Writer(no_memory, Doorbell())  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Ring()
    with pytest.raises(TypeError):
        Message()


def test_a_wait_may_be_longer_than_any_clock() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        writer.send(b"x")
        assert reader.wait(float("inf"))
        assert reader.wait(1e300)
        with pytest.raises(ValueError, match="must not be negative"):
            received(reader), reader.wait(-1)


def test_a_ring_travels_by_pickle_as_its_address() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader:
        copy = pickle.loads(pickle.dumps(ring))
        copy.writer().send(b"through the copy")
        assert received(reader) == [b"through the copy"]


def test_its_memory_can_be_had_on_a_numa_node() -> None:
    with Ring.create(1 << 16) as ring:
        ring.settle(0)  # every machine has one
        with pytest.raises(RingError, match="cannot be moved to NUMA node 4000: Invalid argument"):
            ring.settle(4000)
