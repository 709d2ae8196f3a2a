"""One study of one table with a dependency network: edges, predictions and scores."""
