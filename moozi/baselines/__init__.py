"""Rivals to compare MooZi with."""
