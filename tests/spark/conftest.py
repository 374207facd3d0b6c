"""One local Spark for all tests here; starting one takes seconds."""

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.spark.session import local_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = local_spark(4)
    yield session
    session.stop()
