"""What is done: runs are trained and attacked, alone or side by side."""
