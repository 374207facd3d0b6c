"""Messages read where they lie: views, how long they may be used, and who gives memory back."""

import threading

import pytest

from tailrace.transport.ring import Message, Reader, Ring
from tests.transport.draining import received

LARGE = 32 << 10


def taken(reader: Reader) -> Message:
    message = reader.read()
    assert message is not None
    return message


def test_small_messages_are_handed_over_as_copies_and_large_ones_in_place() -> None:
    with Ring.create(1 << 20) as ring, ring.reader() as reader, ring.writer() as writer:
        sent = [bytes([size % 251]) * size for size in (0, 100, LARGE - 1, LARGE, 5 * LARGE)]
        for number, payload in enumerate(sent):
            writer.send(payload, target=number, kind=number)
        seen: list[tuple[int, int, bytes]] = []
        views: list[memoryview] = []

        def accept(target: int, kind: int, payload: bytes | memoryview) -> None:
            seen.append((target, kind, bytes(payload)))
            if isinstance(payload, memoryview):
                assert isinstance(payload.obj, Message)
                assert payload.readonly
                views.append(payload)

        assert reader.drain(accept, 4) == 4
        assert reader.drain(accept) == 1
        assert reader.drain(accept) == 0
        assert seen == [(number, number, payload) for number, payload in enumerate(sent)]
        assert len(views) == 2
        assert ring.counters()["fill"] == 0.0
        for view in views:
            with pytest.raises(ValueError, match="released"):
                view[0]


def test_a_large_message_is_given_back_when_its_receiver_fails() -> None:
    with Ring.create(1 << 20) as ring, ring.reader() as reader, ring.writer() as writer:

        def refuse(target: int, kind: int, payload: bytes | memoryview) -> None:
            raise KeyError(bytes(payload[:3]))

        writer.send(b"one" + bytes(LARGE))
        writer.send(b"two" + bytes(LARGE))
        with pytest.raises(KeyError, match="one") as failure:
            reader.drain(refuse)
        assert [payload[:3] for payload in received(reader)] == [b"two"], "the next is there"
        assert reader.read() is None
        assert ring.counters()["fill"] == 0.0, "while the error and its frames are still held"
        assert failure.value


def test_a_view_that_is_kept_after_all_is_an_error_and_never_overwritten() -> None:
    with Ring.create(4 * LARGE) as ring, ring.reader() as reader, ring.writer() as writer:
        kept: list[memoryview] = []

        def keep(target: int, kind: int, payload: bytes | memoryview) -> None:
            assert isinstance(payload, memoryview)
            kept.append(payload[:4])

        writer.send(b"kept" + bytes(LARGE))
        with pytest.raises(BufferError, match="1 views of the message are still held"):
            reader.drain(keep)
        while writer.send(b"more" * 1000, wait=False):
            assert received(reader) == [b"more" * 1000]
        assert bytes(kept[0]) == b"kept"
        kept.clear()
        assert reader.read() is None
        assert writer.send(b"room again", wait=False)
        assert received(reader) == [b"room again"]


def test_a_receiver_may_close_the_reader_between_messages_but_not_under_a_view() -> None:
    with Ring.create(1 << 20) as ring, ring.writer() as writer:
        for size, refused in ((10, False), (LARGE, True)):
            reader = ring.reader()

            def close(target: int, kind: int, payload: bytes | memoryview) -> None:
                reader.close()  # noqa: B023 - called within this turn

            writer.send(bytes(size))
            if refused:
                with pytest.raises(BufferError, match="views of messages are still held"):
                    reader.drain(close)
                reader.close()
            else:
                assert reader.drain(close, 1) == 1


def test_a_view_shows_the_message_in_place_until_it_is_released() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        writer.send(b"in place")
        message = taken(reader)
        view = memoryview(message)
        part = view[3:]
        assert bytes(part) == b"place"
        assert view.readonly
        view.release()
        with pytest.raises(BufferError, match="1 views of the message are still held"):
            message.release()
        part.release()
        message.release()
        with pytest.raises(ValueError, match="released"):
            memoryview(message)


def test_a_held_view_is_never_overwritten_and_holds_back_only_memory() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        writer.send(b"held" * 16)
        held = taken(reader)
        sent = 0
        while writer.send(b"%064d" % sent, wait=False):
            sent += 1
            assert received(reader) == [b"%064d" % (sent - 1)]
        assert sent == 63, "all of the ring but the held unit"
        assert bytes(memoryview(held)) == b"held" * 16
        held.release()
        assert reader.read() is None
        assert writer.send(b"room again", wait=False)


def test_dropping_the_last_reference_releases_a_message() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        for _ in range(1000):
            writer.send(bytes(1000))
            assert len(memoryview(taken(reader))) == 1000
        assert reader.read() is None
        assert ring.counters()["fill"] == 0.0


def test_a_reader_does_not_close_under_a_view() -> None:
    with Ring.create(4096) as ring, ring.writer() as writer:
        reader = ring.reader()
        writer.send(b"still read")
        view = memoryview(taken(reader))
        with pytest.raises(BufferError, match="1 views"):
            reader.close()
        assert bytes(view) == b"still read"
        view.release()
        reader.close()


def test_a_message_may_be_released_by_another_thread() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader, ring.writer() as writer:
        for _ in range(200):
            writer.send(bytes(1000))
            message = taken(reader)
            thread = threading.Thread(target=message.release)
            thread.start()
            thread.join()
        assert reader.read() is None
        assert ring.counters()["fill"] == 0.0


def test_a_waiting_reader_frees_what_other_threads_release() -> None:
    with Ring.create(4096) as ring, ring.reader() as reader:
        with ring.writer() as writer:
            writer.send(bytes(2048))
            writer.send(bytes(2048))
        held = [taken(reader), taken(reader)]
        sent = threading.Event()

        def release_and_send() -> None:
            for message in held:
                message.release()
            with ring.writer() as other:
                other.send(b"there was room")
            sent.set()

        thread = threading.Thread(target=release_and_send)
        thread.start()
        assert reader.wait(60)
        assert reader.read_bytes() == b"there was room"
        thread.join()
        assert sent.is_set()


def test_a_shared_reader_that_closes_gives_back_what_it_holds() -> None:
    with Ring.create(4096, shared=True) as ring, ring.writer() as writer:
        for _ in range(3):
            reader = ring.reader()
            writer.send(b"held")
            message = taken(reader)
            reader.close()
            message.release()
        with ring.reader() as reader:
            for turn in range(200):
                writer.send(b"%d" % turn)
                assert reader.read_bytes() == b"%d" % turn
