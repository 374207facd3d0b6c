"""A figure over the rounds of a benchmark: how it is summed up, printed and rounded."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """The median of the rounds, and the lowest and the highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Sum up one value per round."""
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.low)}..{short(self.high)})"


def spread_of(values: Sequence[float]) -> Spread | None:
    """None if there are no values."""
    return Spread.of(values) if values else None


def cell(spread: Spread | None) -> str:
    """As text for a table."""
    return "-" if spread is None else str(spread)


def short(value: float) -> str:
    """A number with about three digits.

    >>> short(0.1234), short(12.34), short(1234.5), short(3_400_000)
    ('0.123', '12.3', '1,234', '3,400,000')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def rounded(value: float | None) -> float | None:
    """With the digits that mean something, for JSON."""
    if value is None:
        return None
    return round(value) if value >= 1000 else float(f"{value:.4g}")


def middle(spread: Spread | None) -> float | None:
    """The median, rounded."""
    return None if spread is None else rounded(spread.median)


def limits(spread: Spread | None) -> list[float | None] | None:
    """The lowest and the highest, rounded."""
    return None if spread is None else [rounded(spread.low), rounded(spread.high)]
