"""Costs from measured times: least squares without negative parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tailrace.plan.model.machine import Cost

Point = tuple[float, float, float]
"""Records of the jumbo, bytes of a record, measured ns per record."""


def fit_cost(points: Sequence[Point], *, per_byte: bool = True, per_message: bool = True) -> Cost:
    """The cost per record, byte and message that comes closest to the points.

    Errors count in proportion to the value, so that small records are met as well as large ones.
    No part is negative: of the parts that may be there, those that fit best without that.
    """
    columns = {"record_ns": [1.0 for _ in points]}
    if per_byte:
        columns["byte_ns"] = [size for _, size, _ in points]
    if per_message:
        columns["message_ns"] = [1 / records for records, _, _ in points]
    # A value near zero is the rest of a subtraction: it must not count more than all others.
    least_ns = max(sum(ns for _, _, ns in points) / len(points) / 2, 1.0)
    scale = [1 / max(ns, least_ns) for _, _, ns in points]
    wanted = [ns * s for (_, _, ns), s in zip(points, scale, strict=True)]
    best: dict[str, float] = {}
    least = sum(value * value for value in wanted)
    for count in range(1, len(columns) + 1):
        for names in combinations(columns, count):
            rows = [[columns[name][i] * scale[i] for name in names] for i in range(len(points))]
            found = _least_squares(rows, wanted)
            if found is None or min(found) < 0:
                continue
            error = sum(
                (sum(a * x for a, x in zip(row, found, strict=True)) - value) ** 2
                for row, value in zip(rows, wanted, strict=True)
            )
            if error < least * (1 - 1e-9):
                least = error
                best = {name: round(ns, 4) for name, ns in zip(names, found, strict=True)}
    return Cost(**best)


def _least_squares(rows: list[list[float]], wanted: list[float]) -> list[float] | None:
    """By the normal equations and elimination; None if the columns depend on each other."""
    size = len(rows[0])
    matrix = [
        [sum(row[i] * row[j] for row in rows) for j in range(size)]
        + [sum(row[i] * value for row, value in zip(rows, wanted, strict=True))]
        for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(matrix[k][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        if abs(matrix[i][i]) < 1e-12:
            return None
        for k in range(size):
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]
