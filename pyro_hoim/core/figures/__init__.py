"""Pictures that several families share."""
