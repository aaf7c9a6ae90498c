"""One algorithm per file; the file's name is the trainer's name everywhere."""
