"""Training of collections that grow and shrink: exact, by weighted chains, or by pseudo-likelihood."""
