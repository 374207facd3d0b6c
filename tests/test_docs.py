"""The documents name files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
BASES = (ROOT, ROOT / "src" / "tailrace", ROOT / "bench")
_INSIDE = ("docs/architecture.md", "docs/papers.md")
"""Those in which a bare file name is one of ours, and not one of the reader's."""
_NAMED = re.compile(r"`([\w./-]+(?:\.(?:py|pyx|pxd|h|md)|/))`")


def there(name: str) -> bool:
    """Below one of the folders that documents speak from; a bare file name anywhere."""
    if "/" not in name:
        folders = (ROOT / folder for folder in ("src", "tests", "bench"))
        return any(True for folder in folders for _ in folder.rglob(name))
    return any((base / name).exists() for base in BASES)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_names_is_there(document: str) -> None:
    named = set(_NAMED.findall((ROOT / document).read_text()))
    inside = document in _INSIDE
    assert not {name for name in named if not there(name) and (inside or "/" in name)}


def test_names_are_found_and_missed() -> None:
    text = "`plan/model/flow.py`, `plan/flow.py`, `test_docs.py`, `runtime/`, `a b.py`, no.py"
    assert [(name, there(name)) for name in _NAMED.findall(text)] == [
        ("plan/model/flow.py", True),
        ("plan/flow.py", False),
        ("test_docs.py", True),
        ("runtime/", True),
    ]
