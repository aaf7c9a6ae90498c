"""The one exception that a user is meant to read."""


class BadInput(Exception):
    """Something the user gave cannot be used. The message is one sentence: what was expected, what came, what would do.

    The command line prints it and exits with code 2; nothing that was on disk before is touched.
    """


class Diverged(BadInput):
    """Training left the finite numbers; the message names the round and the step sizes."""
