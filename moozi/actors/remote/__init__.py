"""The classes of a run's Ray actors. Most of them are thin wrappers of classes of other packages.

Each actor runs in its own process.
"""
