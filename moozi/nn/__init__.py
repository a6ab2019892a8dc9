"""The networks, and the interface that they share."""
