"""Surgery: a run's state converted to another network, environment or learner, whose outputs are the same."""
