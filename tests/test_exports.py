"""What `import tailrace` gives: these names and no others, and pyspark only when it is needed."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import tailrace
from tailrace._options import StartOptions, TransformOptions
from tailrace.spark.starting import start
from tailrace.spark.transform import transform


def test_what_a_failed_operator_raises_is_caught_as_any_exception() -> None:
    assert issubclass(tailrace.OperatorFailed, Exception)


def test_the_names_of_the_package() -> None:
    assert tailrace.__all__ == [
        "Change",
        "ChangeError",
        "Job",
        "JobFailedError",
        "KeyedStream",
        "Limits",
        "Operator",
        "OperatorFailed",
        "Plan",
        "Reader",
        "Sink",
        "Source",
        "Split",
        "Stream",
        "Tables",
        "Topology",
        "TopologyError",
        "WindowResult",
        "WindowedStream",
        "__version__",
        "local_spark",
        "session",
        "ship",
        "sinks",
        "sliding",
        "sources",
        "tumbling",
    ]


@pytest.mark.parametrize("name", tailrace.__all__)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(tailrace, name)
    assert name in dir(tailrace)
    if not isinstance(found, str):
        assert found.__doc__
    if not isinstance(found, str | ModuleType):
        assert found.__name__ == name


def test_nothing_else_is_there() -> None:
    missing = "Jobs"
    with pytest.raises(AttributeError, match="module 'tailrace' has no attribute 'Jobs'"):
        getattr(tailrace, missing)


def test_no_name_imports_pyspark() -> None:
    """In a process of its own, for here it is imported already."""
    program = (
        "import sys, tailrace, tailrace.topology\n"
        "assert 'pyspark' not in sys.modules\n"
        "assert 'Job' in dir(tailrace)\n"
        "assert 'pyspark' not in sys.modules\n"
        "assert tailrace.Job.__module__ == 'tailrace.spark.job'\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("method", "function", "options"),
    [("start", start, StartOptions), ("transform", transform, TransformOptions)],
)
def test_options_are_typed_and_documented(
    method: str, function: Callable[..., Any], options: type[Any]
) -> None:
    """What Spark's side takes, what editors complete, and what the docstring explains: the same."""
    taken = {
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert set(options.__annotations__) == taken
    told = inspect.getdoc(getattr(tailrace.Topology, method)) or ""
    lines = re.findall(r"^([a-z_, ]+) : ", told, re.MULTILINE)
    documented = {name.strip() for line in lines for name in line.split(",")}
    assert taken <= documented
