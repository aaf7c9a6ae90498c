"""One problem per file; the file's name is the problem's name in a specification."""
