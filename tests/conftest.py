"""Settings for all tests, and which of them may run side by side."""

from __future__ import annotations

import gc
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.seeds import seeds

# No test asserts a maximum time; on a busy machine Hypothesis' own limits would.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=seeds(100),
)
settings.load_profile("untimed")

ROOT = Path(__file__).parents[1]
SPARKS = 2
"""Processes that have a Spark for many files each; more would be more JVMs that warm up."""


@cache
def shares_spark(file: str) -> bool:
    """Whether a file's tests ask for the fixture `spark`."""
    return re.search(r"\bspark: Any\b", (ROOT / file).read_text()) is not None


@cache
def files_on_spark() -> list[str]:
    """Those whose tests ask for it, in their order."""
    names = (str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))
    return sorted(filter(shares_spark, names))


class FewSparks(LoadScopeScheduling):  # type: ignore[misc]
    """With `-n`, files that need a shared Spark run in two processes; others test by test."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        if not shares_spark(file):
            return nodeid
        return f"shared Spark {files_on_spark().index(file) % SPARKS}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Called by xdist."""
    return FewSparks(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shared Sparks begin; then what starts a Spark of its own: nothing long comes last."""
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """Simulations make and drop much: by default the collector takes a fifth of the time."""
    gc.set_threshold(20_000, 20, 20)


def _turn(item: pytest.Item) -> int:
    if shares_spark(item.nodeid.split("::")[0]):
        return 0
    return 1 if item.path.parent.name in ("spark", "concurrency", "control") else 2
