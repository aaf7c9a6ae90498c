"""Limits of what can be asked for, where a command line needs them before anything heavy is imported."""

LARGEST_SEED = 2**32 - 1
"""What every generator of random numbers here takes."""
