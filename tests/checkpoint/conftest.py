"""A store in a local folder, and one by pyarrow."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from tailrace.checkpoint.arrow_folder import ArrowFolder
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.store import Store


@pytest.fixture(params=["local", "arrow"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    where = str(tmp_path / "state")
    if request.param == "local":
        return Store(folder_at(where))
    return Store(ArrowFolder(fs.LocalFileSystem(), where, where))
