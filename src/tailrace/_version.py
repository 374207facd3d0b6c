"""The version, apart from everything that it would have to import."""

__version__ = "0.1.0"
