"""Parameters of laws whose normalising constant is not computed: the exchange algorithm and its kin."""
