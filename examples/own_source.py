"""A source of your own, with positions: it goes on where it was, with other parallelism.

python examples/own_source.py
"""

from collections.abc import Callable

import tailrace as tr
from tailrace.runtime.reading import SourceStep
from tailrace.testing import VirtualClock, collect, run

LETTERS = {"alice": "abcdef", "bob": "ghi", "dora": "jklmno"}


class Mailboxes(tr.Source):
    """A mailbox is a split: it has a name and a position of its own."""

    rewinds = True

    def splits(self, parallelism: int) -> list[tr.Split]:
        return [tr.Split(name) for name in LETTERS]

    def open(
        self, split: tr.Split, clock_ns: Callable[[], int], position: int | None = None
    ) -> tr.Reader:
        return Mailbox(split.name, position or 0)


class Mailbox(tr.Reader):
    def __init__(self, name: str, read: int) -> None:
        self.name, self.read = name, read

    def poll(self, most: int) -> list[str] | None:
        letters = LETTERS[self.name][self.read : self.read + min(most, 2)]
        self.read += len(letters)
        return [f"{self.name}: {letter}" for letter in letters] or None

    def position(self) -> int:
        return self.read


if __name__ == "__main__":
    topology = tr.Topology()
    letters = collect(topology.source(Mailboxes(), parallelism=2))
    assert run(topology).ended
    print(len(letters), "letters by two instances")

    one = SourceStep(Mailboxes(), 0, 1, print, VirtualClock())
    for _ in range(3):
        print("one instance reads", one.poll(10))
    for index in range(2):  # two take its place, each with the splits whose home it is
        mine = {split: at for split, at in one.positions().items() if split.home(2) == index}
        two = SourceStep(Mailboxes(), index, 2, print, VirtualClock(), mine)
        while some := two.poll(10):
            print(f"instance {index} of two reads", some)
