"""Posteriors over structure within a study: how they are found, what is set beside them, and what a page shows."""
