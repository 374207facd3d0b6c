"""The examples in docstrings, of every module that has any."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import tailrace

ROOT = Path(tailrace.__file__).parent


def with_examples() -> list[str]:
    found = [path for path in ROOT.rglob("*.py") if ">>> " in path.read_text()]
    names = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in found]
    return sorted(name.removesuffix(".__init__") for name in names)


@pytest.mark.parametrize("name", with_examples())
def test_the_examples_of_docstrings_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed
