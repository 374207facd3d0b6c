"""Cores that go from one deployment to another; channels keep what is sent until asked for it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import tailrace as tr
from tailrace.graph.model import Graph
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.deployment import Deployment, deploy
from tailrace.testing import VirtualClock
from tests.runtime.posts import Kept

WORKERS = 3


class Cores:
    """Three workers, without checkpoints."""

    def __init__(self, topology: tr.Topology | Graph, placement: Sequence[int]) -> None:
        graph = topology.graph if isinstance(topology, tr.Topology) else topology
        self.clock = VirtualClock()
        self.number = 0
        self.deployment = deploy(graph, placement)
        self.posts = [Kept() for _ in range(WORKERS)]
        self.cores = [
            Core(rank, self.deployment, self.clock, post, limits=Limits(poll_records=3))
            for rank, post in enumerate(self.posts)
        ]

    def exchange(self) -> bool:
        """Carry what was sent; whether that was anything."""
        moved = False
        for rank, post in enumerate(self.posts):
            messages, post.messages = post.messages, []
            for parcels in messages:
                for gate, items in parcels:
                    self.cores[post.peers[gate]].deliver(rank, [(gate, items)], 0, 1)
                    moved = True
            credits, post.credits = post.credits, []
            for peer, *credit in credits:
                self.cores[peer].credit(*credit)
            states, post.states = post.states, []
            for peer, message in states:
                self.cores[peer].receive_state(rank, pickle.loads(pickle.dumps(message)))
                moved = True
        return moved

    def rounds(self, count: int) -> None:
        for _ in range(count):
            for core in self.cores:
                core.round()
            self.exchange()

    def change(self, after: Deployment) -> int:
        """Go over to another deployment, while it runs; how many keys have moved."""
        self.number += 1
        for core in self.cores:
            core.prepare(self.number, after)
        for core in self.cores:
            core.switch()
        waiting, keys = set(range(WORKERS)), 0
        for _ in range(10_000):
            for core in self.cores:
                core.round()
                core.move()
                if (moving := core.moved()) is not None:
                    waiting.discard(core.rank)
                    keys += moving.moved_keys
            self.exchange()
            if not waiting:
                self.deployment = after
                return keys
        raise AssertionError(f"workers {waiting} are not done")
