"""Baselines to compare MooZi with."""
