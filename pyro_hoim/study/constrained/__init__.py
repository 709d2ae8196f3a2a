"""Fits within norm balls in a study: what was asked, the run, its record, sections and pictures of a page."""
