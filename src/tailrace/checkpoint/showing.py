"""State for people: epochs, operators, keys and values as text, also without the user's classes."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.checkpoint.errors import CheckpointError
from tailrace.checkpoint.folder import Folder
from tailrace.checkpoint.manifest import Manifest
from tailrace.checkpoint.reading import read_dict, read_shared
from tailrace.checkpoint.sections import Section, chains
from tailrace.checkpoint.store import Store

_PLAIN = (type(None), bool, int, str)


@dataclass(frozen=True)
class Row:
    """One key of an operator, or what an instance of it keeps beside keys."""

    operator: str
    index: int
    """Of the instance that wrote it."""
    kind: str
    """keyed or shared."""
    key: Any
    """None in a shared one."""
    value: Any


def chosen(store: Store, epoch: int | None = None, verify: bool = True) -> Manifest:
    """An epoch, or the newest that is whole; raises a CheckpointError if there is none."""
    if epoch is not None:
        return store.at(epoch)
    found = store.latest(verify)
    if found is None:
        causes = "".join(f"; {one}" for one in store.passed_over)
        raise CheckpointError(f"there is no epoch to be read in {store.folder.url!r}{causes}")
    return found


def operators(manifest: Manifest) -> list[str]:
    """The operators of an epoch, with and without state."""
    return list(dict.fromkeys([*manifest.operators, *(one.operator for one in manifest.sections)]))


def of_operator(manifest: Manifest, operator: str | None) -> tuple[Section, ...]:
    """The sections of an operator, or all of them; raises if there is no such operator."""
    if operator is None:
        return manifest.sections
    known = operators(manifest)
    if operator not in known:
        raise CheckpointError(
            f"epoch {manifest.epoch} has no operator {operator!r}; it has {known}"
        )
    return manifest.of(operator)


def rows(folder: Folder, sections: Iterable[Section]) -> Iterator[Row]:
    """All state in some sections, merged; what is shared comes before the keys of its instance.

    Classes that cannot be imported here are stood in for.
    """
    for (operator, index), chain in chains(sections).items():
        for _, value in read_shared(folder, chain, loads=loads):
            yield Row(operator, index, "shared", None, value)
        for key, value in read_dict(folder, chain, loads=loads).items():
            yield Row(operator, index, "keyed", key, value)


def count_keys(folder: Folder, sections: Iterable[Section]) -> int:
    """How many keys there are; reads them only if no worker has said it."""
    total = 0
    for chain in chains(sections).values():
        keyed = [section for section in chain if section.kind != "shared"]
        said = keyed[-1].keys if keyed else 0
        total += said if said is not None else len(read_dict(folder, keyed, loads=loads))
    return total


def as_text(value: Any) -> str:
    """A text as it is, what JSON knows as JSON, all else as Python shows it.

    >>> [as_text(one) for one in ("a", 1, (1, "a"), {"a": None}, {1: 2})]
    ['a', '1', '[1, "a"]', '{"a": null}', '{1: 2}']
    """
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if is_json(value) else shown(value)


def as_json(value: Any) -> Any:
    """A value that JSON knows, as it is; all else as text."""
    return value if is_json(value) else shown(value)


def shown(value: Any) -> str:
    """Its repr, whatever the user's class does there."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def is_json(value: Any) -> bool:
    """Whether nothing but tuples (as lists) is lost in JSON."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is float:
        return math.isfinite(value)
    if kind in (list, tuple):
        return all(map(is_json, value))
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(is_json, value.values()))
    return False


def as_pickle(value: Any) -> bytes | None:
    """None: it has a class that cannot be imported here."""
    try:
        return pickle.dumps(value, 5)
    except Exception:  # a stand-in, or whatever the user's classes raise
        return None


def loads(data: bytes | memoryview) -> Any:
    """Unpickle, with stand-ins for classes that cannot be imported."""
    return _Lenient(io.BytesIO(data)).load()


class _Lenient(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == "loads" and module in ("_pickle", "pickle"):
            return loads  # of an Encoded value
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return type(name.rpartition(".")[2], (_StandIn,), {"full_name": f"{module}.{name}"})


class _StandIn:
    """An object of a class that is not here: shows what was pickled, and equals by it."""

    full_name = ""

    def __new__(cls, *arguments: Any, **named: Any) -> _StandIn:
        self = super().__new__(cls)
        self._parts.extend(shown(one) for one in arguments)
        self._parts.extend(f"{name}={shown(one)}" for name, one in named.items())
        return self

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        states = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        for one in states:
            if isinstance(one, dict):
                self._parts.extend(f"{name}={shown(value)}" for name, value in one.items())
            elif one is not None:
                self._parts.append(shown(one))

    @property
    def _parts(self) -> list[str]:
        found: list[str] = self.__dict__.setdefault("parts", [])
        return found

    def append(self, item: Any) -> None:
        """Of a list's heir."""
        self._parts.append(shown(item))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._parts.append(f"{shown(key)}: {shown(value)}")

    def __repr__(self) -> str:
        return f"{self.full_name}({', '.join(self._parts)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StandIn) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce_ex__(self, _: Any) -> Any:
        raise pickle.PicklingError(f"{self.full_name} cannot be imported here")


def matching(text: str) -> Callable[[Any], bool]:
    """Whether a key is the one that somebody typed."""
    return lambda key: text in (as_text(key), shown(key), str(key))
