"""The classes of the Ray actors, thin wrappers of other packages. Each actor runs in its own process."""
