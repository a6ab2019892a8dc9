"""The classes of the Ray actors, thin shells over other packages. Each actor runs in its own process."""
