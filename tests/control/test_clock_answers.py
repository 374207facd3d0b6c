"""Whoever asks the coordinator for the time."""

from __future__ import annotations

import time

from tailrace.control.clocks import AskClock
from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import COORDINATOR_ID, KIND, pack
from tailrace.transport.identity import pin_in
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

PATIENCE_S = 60.0


def test_one_that_asks_for_the_time_and_goes_disturbs_nobody() -> None:
    coordinator = Coordinator(1, "127.0.0.1", lambda: None)
    config = TcpConfig(worker_id=0, secret=coordinator.secret)
    for _ in range(5):
        asking = TcpConnection.connect(
            config, coordinator.address, COORDINATOR_ID, Refusals(), pin=pin_in(coordinator.secret)
        )
        deadline_s = time.monotonic() + PATIENCE_S
        while not asking.authenticated and time.monotonic() < deadline_s:
            asking.on_ready(asking.events)
        for _ in range(100):
            asking.send(0, KIND, [pack(AskClock(0, 1))])
        asking.flush()
        asking.close()
    coordinator.stop(drain=False)
    coordinator.join(PATIENCE_S)
    assert coordinator.roster.phase in ("stopped", "failed")
    assert "coordinator failed" not in coordinator.roster.reason
