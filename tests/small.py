"""A process for what forks again and again.

A process that has imported what all tests need takes ten times as long to fork as one that has only
what is forked for: its memory is mapped anew each time.
"""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context


@contextmanager
def small_process() -> Iterator[Executor]:
    """Runs functions of modules, which it imports; what they raise is raised here."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        yield executor
