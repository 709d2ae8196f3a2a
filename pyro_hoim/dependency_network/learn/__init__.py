"""Learning of dependency networks: decision graphs by greedy splits and merges, one per variable."""
