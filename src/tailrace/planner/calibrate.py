"""What our own transport costs on this machine: a micro-benchmark of a few seconds.

Two real workers exchange records (`pair`). What a source and a sink cost by themselves, and the
time of the codec, are measured apart and taken off; the rest is the boundary's. A cost is fitted
over small and large records and jumbos: ns per record, per byte and per message.

Encoding depends on what records are, more than on their size. Profiles measure it for the records
themselves; where no profile does, records count as pickled tuples, which is slower than text and
bytes (flat codec) and faster than objects of classes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path

from tailrace.plan.model.machine import Cost, Crossing, Machine
from tailrace.planner.codec import CodecTimes, measure_codec
from tailrace.planner.detect import detect
from tailrace.planner.fit import Point, fit_cost
from tailrace.planner.pair import ACROSS, ALONE, FUSED, LOCAL, Trial, run_pair, text_records
from tailrace.planner.yardstick import Yardstick, full_speed_ns

JUMBOS = (32, 256)
"""Records: a poll that many receivers share, and a whole one."""
SIZES_BYTES = (16, 128, 1024)
OTHER_SOCKET_FACTOR = 1.5
"""What another socket costs, in terms of the same one, where it cannot be measured."""
_GAUGING_S = 1.0
"""To find out how fast the cores are when nobody slows them down."""


def this_machine(path: Path | str | None = None, *, fresh: bool = False) -> Machine:
    """This machine with its measured costs, from the file that an earlier call has left.

    The file is `path`, or one in the user's cache folder for this host and version. It is made, or
    made again, when there is none, with `fresh`, when sockets and cores are others now, or when it
    does not say how fast they were.
    """
    path = cache_path() if path is None else Path(path)
    kept = None if fresh else kept_machine(path)
    if kept is not None:
        return kept
    machine = calibrate(detect())
    path.parent.mkdir(parents=True, exist_ok=True)
    # Others may read it, or write it, at the same time.
    whole = path.with_name(f"{path.name}.{os.getpid()}")
    machine.save(whole)
    whole.replace(path)
    return machine


def kept_machine(path: Path) -> Machine | None:
    """What the file says, if it is there and still true of this machine."""
    if not path.exists():
        return None
    kept = Machine.load(path)
    return kept if kept.nodes == detect().nodes and kept.yardstick_ns else None


def cache_path() -> Path:
    """Where this host's costs are kept."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    try:
        number = version("tailrace")
    except PackageNotFoundError:
        number = "source"
    return Path(folder) / "tailrace" / f"machine-{socket.gethostname()}-{number}.json"


def calibrate(machine: Machine, *, link_bits_per_s: float = inf) -> Machine:
    """The machine (one node, this one) with the costs of its boundaries.

    What another node costs is measured over the loopback: the same system calls and copies, without
    a network card's. The speed of the link is yours to say. Costs are for cores at full speed.
    """
    (node,) = machine.nodes
    sockets = [set(one.cores) for one in node.sockets]
    bases = [
        Trial(distance, n, SIZES_BYTES[0]) for distance in (ALONE, FUSED, LOCAL) for n in JUMBOS
    ]
    across = [Trial(ACROSS, n, size) for n in JUMBOS for size in SIZES_BYTES]
    yardstick = Yardstick(full_speed_ns(_GAUGING_S))
    texts = [text_records(trial.jumbo_records, trial.record_bytes) for trial in across]
    text = [measure_codec([(records,)], yardstick, rounds=20) for records in texts]
    pair = partial(run_pair, yardstick_ns=yardstick.base_ns)
    here = (sockets[0], sockets[0])
    found = dict(zip(bases + across, pair(bases + across, cores=here), strict=True))
    alone, fused, local = (
        [found[trial][0] for trial in bases if trial.distance == distance]
        for distance in (ALONE, FUSED, LOCAL)
    )
    # A source or sink by itself, per record, by jumbo.
    own = {n: (a, max(f - a, 0.0)) for n, a, f in zip(JUMBOS, alone, fused, strict=True)}
    both = fit_cost(
        [(n, 0, max(one - two, 0.0)) for n, one, two in zip(JUMBOS, local, fused, strict=True)],
        per_byte=False,
    )
    half = Cost(record_ns=both.record_ns / 2, message_ns=both.message_ns / 2)
    encode, decode = _pickled(yardstick)

    def crossing(times: Sequence[tuple[float, float]]) -> Crossing:
        sender, receiver = _points(across, times, text, own)
        return Crossing(fit_cost(sender), fit_cost(receiver), encode, decode)

    same_socket = crossing([found[trial] for trial in across])
    apart = []
    for distance in range(1, len(machine.other_socket) + 1):
        two = _sockets_at(machine, distance, sockets)
        if two is None:
            apart.append(_scaled(same_socket, OTHER_SOCKET_FACTOR**distance))
        else:
            apart.append(crossing(pair(across, cores=two)))
    return replace(
        machine,
        same_place=Crossing(half, half),
        same_socket=same_socket,
        other_socket=tuple(apart),
        other_node=crossing(pair(across, by_tcp=True, cores=here)),
        link_bytes_per_s=link_bits_per_s / 8,
        yardstick_ns=round(yardstick.base_ns, 1),
    )


def _points(
    trials: Sequence[Trial],
    times: Sequence[tuple[float, float]],
    codec: Sequence[CodecTimes],
    own: dict[int, tuple[float, float]],
) -> tuple[list[Point], list[Point]]:
    """What is left for sender and receiver without the source, the sink and the codec."""
    sender: list[Point] = []
    receiver: list[Point] = []
    for trial, (sent_ns, received_ns), coded in zip(trials, times, codec, strict=True):
        n, size = trial.jumbo_records, trial.record_bytes
        source_ns, sink_ns = own[n]
        sender.append((n, size, max(sent_ns - source_ns - coded.encode_ns, 0.0)))
        receiver.append((n, size, max(received_ns - sink_ns - coded.decode_ns, 0.0)))
    return sender, receiver


def _pickled(yardstick: Yardstick) -> tuple[Cost, Cost]:
    """What encoding and decoding tuples of a number and a text cost, by the bytes they make."""
    encode: list[Point] = []
    decode: list[Point] = []
    for size in SIZES_BYTES:
        records = [(i, text) for i, text in enumerate(text_records(128, size))]
        times = measure_codec([(records,)], yardstick, rounds=20)
        encode.append((128, times.record_bytes, times.encode_ns))
        decode.append((128, times.record_bytes, times.decode_ns))
    return fit_cost(encode, per_message=False), fit_cost(decode, per_message=False)


def _sockets_at(
    machine: Machine, distance: int, sockets: Sequence[Collection[int]]
) -> tuple[Collection[int], Collection[int]] | None:
    """The cores of two sockets that far apart, if we may use both."""
    (node,) = machine.nodes
    allowed = os.sched_getaffinity(0)
    for one, row in enumerate(node.distances):
        for other, far in enumerate(row):
            if far == distance and allowed & {*sockets[one]} and allowed & {*sockets[other]}:
                return sockets[one], sockets[other]
    return None


def _scaled(crossing: Crossing, factor: float) -> Crossing:
    def times(cost: Cost) -> Cost:
        return Cost(
            cost.record_ns * factor,
            cost.byte_ns * factor,
            cost.line_ns * factor,
            cost.message_ns * factor,
        )

    return replace(crossing, sender=times(crossing.sender), receiver=times(crossing.receiver))
