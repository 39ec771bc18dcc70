"""What stands in the place of a callback that nobody has set."""


def ignore(*_: object) -> None:
    """Do nothing, whatever it is told."""
