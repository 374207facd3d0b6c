"""Systems that cannot start or fail on the way: named, ended and left out."""

from pathlib import Path

import pytest

import peers
from harness.frame import Options
from harness.process import PeerError
from peer_systems.contestants import Contestant, contestants
from peer_systems.feed import Order
from peer_systems.told import Measured


class Broken(Contestant):
    """Starts, and fails at its first run."""

    key, label = "broken", "Broken"
    ended = 0

    def start(self, folder: Path) -> None:
        pass

    def run(self, order: Order, warm_s: float, tuning: str) -> Measured:
        raise PeerError("gone")

    def end(self) -> None:
        self.ended += 1


def test_a_system_that_fails_is_ended_at_once_and_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken()
    monkeypatch.setattr(peers, "contestants", lambda: [broken])
    monkeypatch.setattr(peers.Run, "background_percent", lambda run: 0.0)
    run = peers.Run(Options(True, 1, tmp_path), tmp_path, 0.0)
    run.measure()
    assert broken.ended == 1
    assert run._results.missing == {"broken": "gone"}
    run.end()


@pytest.mark.parametrize("system", contestants(), ids=lambda system: system.key)
def test_a_system_that_never_started_can_be_ended(system: Contestant) -> None:
    system.end()
