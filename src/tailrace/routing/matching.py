"""The matching of greatest weight between rows and columns: who gets which of equal places."""

from __future__ import annotations

from typing import Any

import numpy as np


def best_matching(weights: Any) -> list[int]:
    """A column for each row of a square matrix, all different, so that the sum is the greatest.

    By shortest augmenting paths, in time that grows with the third power of the size.

    >>> best_matching([[9, 8], [7, 1]])
    [1, 0]
    """
    cost = -np.asarray(weights, np.float64)
    size = len(cost)
    row_price, column_price = np.zeros(size + 1), np.zeros(size + 1)
    row_of = np.full(size + 1, -1)  # of each column; the last is where a path begins
    for row in range(size):
        row_of[size] = row
        column = size
        distance = np.full(size, np.inf)
        came_from = np.full(size, size)
        done = np.zeros(size + 1, bool)
        while row_of[column] >= 0:
            done[column] = True
            here = row_of[column]
            reduced = cost[here] - row_price[here] - column_price[:size]
            better = ~done[:size] & (reduced < distance)
            distance[better] = reduced[better]
            came_from[better] = column
            candidates = np.where(done[:size], np.inf, distance)
            nearest = int(candidates.argmin())
            step = candidates[nearest]
            row_price[row_of[done]] += step
            column_price[done] -= step
            distance[~done[:size]] -= step
            column = nearest
        while column != size:
            before = int(came_from[column])
            row_of[column] = row_of[before]
            column = before
    result = [0] * size
    for column in range(size):
        result[row_of[column]] = column
    return result
