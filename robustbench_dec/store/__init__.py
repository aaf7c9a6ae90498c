"""What is kept: the only room that knows the files of runs and cells."""
