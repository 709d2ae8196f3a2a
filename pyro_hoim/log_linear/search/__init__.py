"""Selection of interactions: candidates under heredity, their scores, greedy search and pruning."""
