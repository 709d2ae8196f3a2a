"""One study of one table of counts: fits, scores, simpler laws and dependence."""
