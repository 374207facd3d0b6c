"""The names of the ready-made sources and sinks."""

from __future__ import annotations

from tailrace import sinks, sources


def test_the_names_of_sources_and_sinks() -> None:
    assert sources.__all__ == [
        "bursts",
        "dataframe",
        "items",
        "journaled",
        "lines",
        "listen",
        "ndjson",
        "parquet",
        "poisson",
        "rate",
        "socket",
        "unpaced",
    ]
    assert sinks.__all__ == ["call", "console", "ndjson", "parquet", "socket", "text"]
