"""What encoding costs: the time per record of the engine's own codec, both ways."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tailrace.planner.yardstick import Yardstick
from tailrace.transport.peer import JumboCodec


@dataclass(frozen=True)
class CodecTimes:
    """Per record, at the size of jumbo that was measured."""

    encode_ns: float
    decode_ns: float
    record_bytes: float


def measure_codec(
    jumbos: Sequence[tuple[list[Any], ...]], yardstick: Yardstick, rounds: int = 3
) -> CodecTimes:
    """CPU time and size of the records of some jumbos, the median over jumbos and rounds.

    A jumbo is records, and their keys if these go with them. Times are at the yardstick's speed.
    Raises CodecError for records that cannot be encoded.
    """
    codec = JumboCodec(time.monotonic_ns)
    encode, decode, sizes = [], [], []
    for _ in range(rounds):
        for run in jumbos:
            records = run[0]
            factor = yardstick.factor()
            began_ns = time.thread_time_ns()
            buffers = codec.encode([(0, [(0, 0, *run)])])
            encoded_ns = time.thread_time_ns()
            # What comes out of a ring is one piece of memory.
            payload = b"".join(buffers)
            joined_ns = time.thread_time_ns()
            codec.decode(payload)
            decode.append((time.thread_time_ns() - joined_ns) * factor / len(records))
            encode.append((encoded_ns - began_ns) * factor / len(records))
            sizes.append(len(payload) / len(records))
    return CodecTimes(median(encode), median(decode), sum(sizes) / len(sizes))
