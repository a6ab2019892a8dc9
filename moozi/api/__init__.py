"""The public API in Python, which `moozi` exposes and the commands use: training, runs, agents, searches."""
