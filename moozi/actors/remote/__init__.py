"""One thin shell per Ray actor: what runs in a process of its own."""
