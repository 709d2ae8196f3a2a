"""What families share when a command asks them: options, rows by the words of a command line, and answers."""
