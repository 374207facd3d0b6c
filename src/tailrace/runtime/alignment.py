"""Where a marker has come on every link: the point at which an instance is cut.

An instance holds the links on which the marker has come until it has come on all of them. Instances
of one chain in one worker share their exchanges, so they are cut together, and the marker goes on
behind what any of them has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tailrace.runtime.instance import Instance
from tailrace.runtime.markers import Change, Checkpoint

Group = list[Instance]
"""The instances of one chain that run in a worker."""


def nothing(group: Group) -> None:
    """What is done with a group if nothing is."""


def always(group: Group) -> bool:
    """A group need not wait for anything else."""
    return True


class Alignment:
    """One marker on its way through the instances of a worker."""

    def __init__(
        self,
        groups: Iterable[Group],
        marker: Checkpoint | Change,
        *,
        may_cut: Callable[[Group], bool] = always,
        before: Callable[[Group], None] = nothing,
        behind: Callable[[Group], None] = nothing,
    ) -> None:
        """`before` is called before the marker goes on, `behind` right after it.

        Then what was held goes on. `may_cut` says whether a group that has the marker on all links
        can be cut now.
        """
        self._marker = marker
        self._uncut = [*groups]
        self._may_cut = may_cut
        self._before = before
        self._behind = behind

    @property
    def waiting(self) -> bool:
        """Whether some are not cut yet."""
        return bool(self._uncut)

    def look(self) -> None:
        """Cut what is due; to be called when links have ended, too."""
        if self._uncut:
            self._uncut = [group for group in self._uncut if not self._cut(group)]

    def _cut(self, group: Group) -> bool:
        for instance in group:
            if not instance.ended and any(
                not inlet.held and (inlet.reopens or not inlet.ended)
                for inlet in instance.inlets.values()
            ):
                return False
        if not self._may_cut(group):
            return False
        self._before(group)
        exchanges = {
            id(router.exchange): router.exchange
            for instance in group
            for routers in instance.routers.values()
            for router in routers
        }
        for exchange in exchanges.values():
            exchange.cut(self._marker)
        self._behind(group)
        for instance in group:
            for inlet in instance.inlets.values():
                if inlet.held and not inlet.fresh:
                    inlet.release(instance.clock_ns())
        return True
