"""What a reader takes out of a ring, as a list."""

from tailrace.transport.ring import Reader


def drained(reader: Reader, limit: int = 1_000_000) -> list[tuple[int, int, bytes]]:
    """Target, kind and a copy of the payload of each message."""
    messages: list[tuple[int, int, bytes]] = []
    reader.drain(
        lambda target, kind, payload: messages.append((target, kind, bytes(payload))), limit
    )
    return messages


def received(reader: Reader, limit: int = 1_000_000) -> list[bytes]:
    """The payloads alone."""
    return [payload for _, _, payload in drained(reader, limit)]
