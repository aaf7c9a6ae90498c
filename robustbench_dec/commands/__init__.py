"""The command line. Words and their explanations come first; torch is imported only when a command runs."""
