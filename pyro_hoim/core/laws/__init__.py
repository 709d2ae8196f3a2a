"""What the Pyro distributions of all families share."""
