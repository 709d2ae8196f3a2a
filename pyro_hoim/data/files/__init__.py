"""Files of rows as people have them."""
