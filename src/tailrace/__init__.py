"""Low-latency stream processing in Python, inside the Spark cluster you already have."""

__version__ = "0.1.0"

__all__ = ["__version__"]
