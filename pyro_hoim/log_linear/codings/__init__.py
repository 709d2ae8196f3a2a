"""Further maps between codings of theta."""
