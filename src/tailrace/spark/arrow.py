"""Arrow batches through a function of ours, in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def map_in_arrow(df: Any, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> Any:
    """`df.mapInArrow(function, schema)`, which insists on pandas and then makes no use of it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    mapped = UserDefinedFunction(function, returnType=schema, evalType=kind)
    column = mapped(*(df[name] for name in df.columns))
    return DataFrame(df._jdf.mapInArrow(column._jc, False, None), df.sparkSession)
