"""Settings for all tests, and which of them may run side by side."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# No test asserts a maximum time; on a busy machine Hypothesis' own limits would.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

ROOT = Path(__file__).parents[1]


@cache
def shares_spark(file: str) -> bool:
    """Whether a file's tests ask for the fixture `spark`."""
    return re.search(r"\bspark: Any\b", (ROOT / file).read_text()) is not None


class OneSpark(LoadScopeScheduling):  # type: ignore[misc]
    """With `-n`, all files that need the shared Spark run in one process; others test by test."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "the shared Spark" if shares_spark(file) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Called by xdist."""
    return OneSpark(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The shared Spark begins; then what starts a Spark of its own: nothing long comes last."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if shares_spark(item.nodeid.split("::")[0]):
        return 0
    return 1 if item.path.parent.name in ("spark", "concurrency", "control") else 2
