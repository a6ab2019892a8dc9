"""The Python API: training, runs, agents and searches. The package `moozi` exports it."""
