"""Whether a generalized root model can be normalised."""
