"""What the commands ask of a log-linear model, given or learned."""
