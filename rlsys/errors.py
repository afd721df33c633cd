"""The two ways a command ends badly, and their exit codes."""


class BadInput(Exception):
    """What the user gave cannot be used: one clear line, exit code 2, and nothing was started."""


class RunFailed(Exception):
    """The run cannot go on: the reason is the last line printed, exit code 1, and it can be resumed."""
