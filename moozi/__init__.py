"""MooZi: a MuZero system that plans with a learned model."""

__version__ = "0.1.0"
