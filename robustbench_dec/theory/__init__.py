"""What the papers claim, measured on problems whose solution is known."""
