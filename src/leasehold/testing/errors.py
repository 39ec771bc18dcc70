"""What a simulation complains with.

SimulationError        something went wrong inside; says seed, host and virtual time
 +-- NotReached        `run_until` ran out of virtual time
 +-- Spinning          a limit on turns was hit: time does not advance, or nothing ends
NotSimulated           host code asked for a thread, a socket or another real resource
"""


class SimulationError(Exception):
    """A simulated world failed. The seed in the message replays it."""

    def __init__(self, what: str, *, seed: int, now: float, host: str | None = None) -> None:
        place = f", host {host}" if host is not None else ""
        super().__init__(f"[seed {seed}, t={now:.6f}{place}] {what}")
        self.seed = seed
        self.now = now
        self.host = host


class NotReached(SimulationError):
    """What `run_until` waited for did not become true in time."""


class Spinning(SimulationError):
    """More turns than the limit allows."""


class NotSimulated(RuntimeError):
    """Only clocks and network are simulated; threads and sockets would break replay."""
