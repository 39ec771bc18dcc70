"""Going through what comes in, one message after the other."""

from abc import abstractmethod
from typing import Self


class Receiving:
    """Something that messages come in on: `async for` goes through them."""

    __slots__ = ()

    @abstractmethod
    async def receive(self) -> bytes | None:
        """Give the next message; None if there are no more."""

    def __aiter__(self) -> Self:
        """Go through the messages."""
        return self

    async def __anext__(self) -> bytes:
        """Give the next message."""
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message
