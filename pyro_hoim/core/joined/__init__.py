"""Models of joined columns, asked about the columns as they were."""
