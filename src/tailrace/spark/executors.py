"""Executors that Spark counts, and whether their hosts still answer."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

_ANSWER_S = 3.0
"""Hosts that are there accept or refuse within milliseconds; this allows for a lost packet."""
_AT_A_TIME = 32
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)


@dataclass(frozen=True)
class Executor:
    """One that Spark counts: its number, and where it listens."""

    id: str
    host: str
    port: int


def silent(
    executors: Sequence[Executor], answers: Callable[[str, int], bool] | None = None
) -> list[Executor]:
    """Those whose host does not answer at all. Takes milliseconds, or three seconds if some do not.

    A process that is gone does not count: its host says so, and Spark knows it at once.
    """
    answers = answers or partial(answering, timeout_s=_ANSWER_S)
    with ThreadPoolExecutor(max(1, min(_AT_A_TIME, len(executors)))) as pool:
        found = pool.map(lambda one: answers(one.host, one.port), executors)
        return [one for one, there in zip(executors, found, strict=True) if not there]


def answering(host: str, port: int, timeout_s: float) -> bool:
    """Whether somebody at that address accepts or refuses; a name nobody knows counts as there."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except TimeoutError:
        return False
    except OSError as error:
        return error.errno not in _UNREACHABLE
    return True


def at(executors: Sequence[Executor], hosts: Sequence[str]) -> list[Executor]:
    """Those on the given hosts, by name or by address."""
    known = {*hosts, *map(_address, hosts)}
    return [one for one in executors if one.host in known or _address(one.host) in known]


def _address(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host
