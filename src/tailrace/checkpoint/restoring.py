"""From an epoch back to running steps: who goes on from what, whatever the numbers are now.

Keyed state belongs to an operator and a key. Where an operator has as many instances as it had, and
each the keys that it had, each reads what its predecessor wrote; otherwise each reads all of it and
keeps its own keys.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

from tailrace.checkpoint.errors import CheckpointError
from tailrace.checkpoint.folder import Folder
from tailrace.checkpoint.manifest import Manifest
from tailrace.checkpoint.reading import Migrate, read_dict, read_shared
from tailrace.checkpoint.sections import Section
from tailrace.graph.model import Graph, Rule
from tailrace.runtime.chains import NO_CHAIN, Chain
from tailrace.runtime.deployment import Deployment
from tailrace.runtime.source import Split
from tailrace.runtime.state import GoingOn


@dataclass(frozen=True)
class Restoring:
    """An epoch, as a deployment goes on from it."""

    folder: Folder
    manifest: Manifest
    deployment: Deployment
    versions: Mapping[str, int]
    """The state_version of operators that have one."""
    migrations: Mapping[str, Migrate]
    elsewhere: bool = False
    """Whether it lies in another folder than what is written from now on."""

    def going_on(self, operator: str, index: int) -> GoingOn | None:
        """What an instance's copy of an operator goes on from; None: it is new."""
        note = self.manifest.operators.get(operator)
        if note is None:
            return None
        parallelism = self.deployment.graph.operator(operator).parallelism
        routes = self.deployment.layout.routed(self.deployment.graph).get(self._head(operator), 0)
        same = note.parallelism == parallelism and note.routes == routes
        sections = self.manifest.of(operator, index if same else None)
        shared = read_shared(self.folder, sections)
        owns = None if same else self._owner_of(operator, index, parallelism)
        entries = read_dict(
            self.folder,
            sections,
            keep=owns,
            migrate=self.migrations.get(operator),
            state_version=self.versions.get(operator, 0),
        )
        handles = [handle for sink, handle in self.manifest.handles if sink == operator]
        return GoingOn(
            epoch=self.manifest.epoch,
            entries=entries,
            shared=[value for at, value in shared if at % parallelism == index],
            finished=note.finished or (same and index in note.finished_in),
            beside=() if same else [value for _, value in shared],
            handles=[pickle.loads(one) for one in handles[index::parallelism]],
            chain=chain_of(sections) if same and not self.elsewhere else NO_CHAIN,
        )

    def _head(self, operator: str) -> str:
        return self.deployment.wiring.home[operator].operators[0]

    def _owner_of(self, operator: str, index: int, parallelism: int) -> Callable[[Hashable], bool]:
        """Whether a key is this instance's now."""
        deployment = self.deployment
        chain = deployment.wiring.home[operator]
        rules = {
            number: stream.grouping.rule
            for number, stream in enumerate(deployment.graph.streams)
            if stream.target == chain.operators[0] and number in deployment.wiring.streams
        }
        if parallelism == 1:
            return lambda key: True
        by_key = [number for number, rule in rules.items() if rule is Rule.KEY]
        if by_key:
            owner = deployment.route(by_key[0]).owner
            return lambda key: owner(key) == index

        def serves(key: Hashable) -> bool:
            if isinstance(key, Split):
                return key.home(parallelism) == index
            raise CheckpointError(
                f"the state of {operator!r} cannot be dealt to {parallelism} instances: its records"
                f" come by {', '.join(sorted(rule.value for rule in rules.values())) or 'no key'},"
                " which does not say whose a key is. Keep the parallelism that it had"
            )

        return serves


def chain_of(sections: Iterable[Section]) -> Chain:
    """What the keyed sections of one instance, oldest first, come to."""
    chain = NO_CHAIN
    for section in sections:
        if section.kind != "shared":
            chain = chain.longer(section.kind, section.length)
    return chain


def check_fits(manifest: Manifest, graph: Graph, *, drop: Collection[str] = ()) -> None:
    """Raise a CheckpointError if an epoch has state of operators that the topology has not.

    Those to `drop` may be gone; operators that are new start empty.
    """
    kinds = {operator.name: type(operator.logic).__name__ for operator in graph.operators}
    with_state = {section.operator for section in manifest.sections if section.entries}
    gone = sorted(with_state - set(kinds) - set(drop))
    if gone:
        raise CheckpointError(
            f"epoch {manifest.epoch} has state of {', '.join(map(repr, gone))}, and the topology"
            f" has no operator of that name; it has {sorted(kinds)}. Give operators names that stay"
            f" (name=...), or allow the state to be dropped: start(..., drop_state={gone})"
        )
    for name, note in manifest.operators.items():
        if name in with_state and name in kinds and note.kind != kinds[name]:
            raise CheckpointError(
                f"the state of {name!r} was written by a {note.kind}; the operator of that name is"
                f" a {kinds[name]} now. Give it another name, and drop_state=[{name!r}]"
            )
