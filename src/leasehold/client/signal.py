"""Something that happens once, or comes and goes: to be looked at, or waited for."""

import asyncio


class Signal:
    """Set, or not. It tells when; whether a lease can be relied on, its clock says."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        """Whether it is set now."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait until it is set."""
        await self._event.wait()

    def set(self) -> None:
        """Set it."""
        self._event.set()

    def clear(self) -> None:
        """Take it back."""
        self._event.clear()

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self else 'not set'}>"
