"""A layer knows only those above it: what the modules of each may import, by their source.

Imports inside functions count as well: what is imported late is known all the same.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tailrace

ROOT = Path(tailrace.__file__).parent
FACE = "what users import"
ABOVE: dict[str, set[str]] = {
    "graph": set(),
    "transport": set(),
    "routing": {"graph"},
    "tail": {"graph"},
    "plan": {"graph"},
    "adapt": {"graph", "routing", "plan"},
    "runtime": {"graph", "routing", "tail", "transport"},
    "connectors": {"graph", "runtime", "checkpoint"},
    "checkpoint": {"graph", "routing", "transport", "runtime"},
    "control": {
        "graph",
        "plan",
        "routing",
        "adapt",
        "tail",
        "transport",
        "runtime",
        "checkpoint",
    },
    "planner": {"graph", "plan", "routing", "transport", "runtime", "control"},
    "spark": {
        "graph",
        "plan",
        "routing",
        "adapt",
        "tail",
        "transport",
        "runtime",
        "connectors",
        "checkpoint",
        "control",
        "planner",
    },
    FACE: {
        "adapt",
        "graph",
        "plan",
        "routing",
        "tail",
        "transport",
        "runtime",
        "connectors",
        "checkpoint",
        "planner",
        "spark",
    },
    "apps": {"graph", "runtime", FACE},
    "cli": {
        "graph",
        "plan",
        "transport",
        "runtime",
        "connectors",
        "checkpoint",
        "control",
        "planner",
        "spark",
        "apps",
        FACE,
    },
}
"""The layers, and of which others each may know."""
FREE_OF_SPARK = {
    "graph",
    "transport",
    "routing",
    "tail",
    "plan",
    "adapt",
    "runtime",
    "connectors",
    "checkpoint",
    "control",
}
SHARED = {"_version"}
"""Knows nothing, and anybody may know it."""


def layer_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first if first in ABOVE else FACE


def imported(path: Path) -> set[str]:
    """The modules of ours and of others that a file imports, by full name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively, from {node.module}"
            assert node.module is not None
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def known_layers(path: Path) -> set[str]:
    """The layers that a file knows, besides its own."""
    ours = [name.split(".") for name in imported(path) if name.split(".")[0] == "tailrace"]
    parts = {name[1] if len(name) > 1 else "" for name in ours} - SHARED
    return {part if part in ABOVE else FACE for part in parts} - {layer_of(path)}


def test_every_folder_is_a_layer() -> None:
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders == ABOVE.keys() - {FACE}


@pytest.mark.parametrize("layer", ABOVE)
def test_a_layer_knows_only_those_above_it(layer: str) -> None:
    found = {
        (str(path.relative_to(ROOT)), known)
        for path in ROOT.rglob("*.py")
        if layer_of(path) == layer
        for known in known_layers(path) - ABOVE[layer]
    }
    assert not found


@pytest.mark.parametrize("layer", sorted(FREE_OF_SPARK))
def test_a_layer_runs_without_spark(layer: str) -> None:
    modules = {path: imported(path) for path in (ROOT / layer).rglob("*.py")}
    assert not {
        str(path.relative_to(ROOT)): name
        for path, names in modules.items()
        for name in names
        if name.split(".")[0] in ("pyspark", "py4j")
    }


def test_layers_have_an_order() -> None:
    """Nobody is above and below another."""
    left = dict(ABOVE)
    while left:
        ready = [layer for layer, above in left.items() if not above & left.keys()]
        assert ready, f"these know each other in a circle: {sorted(left)}"
        for layer in ready:
            del left[layer]
