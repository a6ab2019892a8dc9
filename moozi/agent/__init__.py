"""Agents, searches, the loss and the update."""
