"""Search, policy, loss and update: pure functions of the network's parameters."""
