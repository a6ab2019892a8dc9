"""The Python API, which the package `moozi` exports (docs/api.md)."""
