"""One thin shell per Ray actor, each of which runs in its own process."""
