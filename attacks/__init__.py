"""One attack per file; the file's name is the attack's name everywhere."""
