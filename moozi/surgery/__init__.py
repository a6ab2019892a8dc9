"""Surgery: converts a run's state to another network, environment or learner, and lists what is lost."""
