"""What can be had of a pickle in which some objects cannot be made.

A class may be pickled and fail when it is made again: an exception whose `__init__` takes other
arguments than it hands on, a module that is not there. Its records then have an `Unreadable` in
place of that object, and all others are as they were sent. This is slow, and for errors only: the
pickle is read again by Python's own unpickler, so what it has made before is made twice.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any, ClassVar


class Unreadable:
    """Stands for an object that could not be made here."""

    def __init__(self, name: str, error: Exception) -> None:
        self.name = name
        self.error = error

    def __repr__(self) -> str:
        return f"<{self.name} that could not be unpickled: {self.error!r}>"

    def __reduce__(self) -> Any:
        raise _FoundError(self)


class _FoundError(TypeError):
    def __init__(self, found: Unreadable) -> None:
        super().__init__(f"{found!r} is not there to be pickled")
        self.found = found


class _Lost:
    """Stands for a class or function that is not here."""

    def __init__(self, name: str, error: Exception) -> None:
        self.__qualname__ = name
        self.error = error

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise self.error


_PurePython: Any = pickle._Unpickler
"""That of C cannot go on behind an object that it could not make."""


class _Unpickler(_PurePython):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {**_PurePython.dispatch}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except Exception as error:
            return _Lost(f"{module}.{name}", error)

    def _made(self, make: Any, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a call gives; or what stands for it, also if it was given something like that."""
        for argument in (*arguments, *named.values()):
            if type(argument) is Unreadable:
                return argument
        try:
            return function(*arguments, **named)
        except Exception as error:
            return Unreadable(getattr(make, "__qualname__", repr(make)), error)

    def _reduce(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = self._made(self.stack[-1], self.stack[-1], *arguments)

    def _new(self, make: Any, arguments: Iterable[Any], named: dict[str, Any]) -> None:
        if isinstance(make, _Lost):
            self.append(self._made(make, make))
        else:
            self.append(self._made(make, make.__new__, make, *arguments, **named))

    def _newobj(self) -> None:
        arguments = self.stack.pop()
        self._new(self.stack.pop(), arguments, {})

    def _newobj_ex(self) -> None:
        named, arguments = self.stack.pop(), self.stack.pop()
        self._new(self.stack.pop(), arguments, named)

    dispatch[pickle.REDUCE[0]] = _reduce
    dispatch[pickle.NEWOBJ[0]] = _newobj
    dispatch[pickle.NEWOBJ_EX[0]] = _newobj_ex


def _filling(fill: Callable[[Any], None], operands: int) -> Callable[[Any], None]:
    """What puts something into the object that lies below it; no operands: all behind a mark."""

    def filled(unpickler: Any) -> None:
        below = unpickler.stack if operands else unpickler.metastack[-1]
        depth = len(below) - operands
        thing = below[depth - 1]
        try:
            if type(thing) is not Unreadable:
                fill(unpickler)
        except Exception as error:
            stands = Unreadable(type(thing).__qualname__, error)
            for number, known in list(unpickler.memo.items()):
                if known is thing:
                    unpickler.memo[number] = stands
            thing = stands
        if unpickler.stack is not below:
            unpickler.pop_mark()
        del below[depth:]
        below[depth - 1] = thing

    return filled


for _code, _operands in (
    (pickle.BUILD, 1),
    (pickle.APPEND, 1),
    (pickle.SETITEM, 2),
    (pickle.APPENDS, 0),
    (pickle.SETITEMS, 0),
    (pickle.ADDITEMS, 0),
):
    _Unpickler.dispatch[_code[0]] = _filling(_Unpickler.dispatch[_code[0]], _operands)


def loads(data: bytes, *, buffers: Iterable[Any] | None = None) -> Any:
    """As of `pickle`, but with an `Unreadable` where an object could not be made."""
    return _Unpickler(io.BytesIO(data), buffers=buffers).load()


def unreadable_in(record: Any) -> Unreadable | None:
    """The first of them in a record, if it has one."""
    try:
        pickle.dumps(record, 5)
    except _FoundError as error:
        return error.found
    except Exception:
        return None
    return None
