"""Columns that say one thing together, joined to one variable: found, joined and split again."""
