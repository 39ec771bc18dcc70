"""`KnownConfig`: the configuration of files, as one process knows it.

It is read again after some seconds, so a process may use one that was changed since. Every
transaction that chooses stores, acknowledges bytes in them, or decides whether a block has enough
replicas therefore compares the revision of the configuration that it was made with. It fails once
there is another one, however long the process was stopped in between, and is made again with that.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from leasehold.engine.values import KeyValue
from leasehold.errors import TooBusy
from leasehold.files.file_keys import CONFIG, decode_config, encode_config
from leasehold.files.namespace import Namespace
from leasehold.files.state import FilesConfig
from leasehold.keyspace.operations import Compare, Relation, Target
from leasehold.services.shared_value import SharedValue, Stored

T = TypeVar("T")

CONFIG_S: Final = 5.0
"""How long the configuration is used before it is read again."""


MAX_CHANGES: Final = 10
"""How often something is done again because the configuration was changed meanwhile."""


class ConfigChanged(Exception):
    """A transaction has failed because the configuration was changed."""


def is_current(config: FilesConfig) -> Compare:
    """Return the condition that the configuration was not changed."""
    return Compare(CONFIG, Target.MOD_REVISION, Relation.EQUAL, config.revision)


class KnownConfig:
    """The configuration of a keyspace. Calling it returns one that may be some seconds old."""

    def __init__(self, namespace: Namespace) -> None:
        self._ns = namespace
        self._shared = SharedValue(
            namespace.engine, CONFIG, FilesConfig(), decode=decode_config, encode=encode_config
        )
        self._read_at = 0.0
        self.last: FilesConfig | None = None
        """The one that was read last."""

    async def __call__(self) -> FilesConfig:
        """Return the configuration."""
        if self.last is None or self._ns.clock.monotonic() > self._read_at + CONFIG_S:
            return await self.read()
        return self.last

    async def read(self) -> FilesConfig:
        """Return the present configuration."""
        now = self._ns.clock.monotonic()
        return self._take_over(await self._ns.answered(self._shared.read), now)

    async def update(self, change: Callable[[FilesConfig], FilesConfig]) -> FilesConfig:
        """Change the configuration, and return it; `change` may be called several times."""
        now = self._ns.clock.monotonic()
        return self._take_over(await self._shared.update(change), now)

    def found(self, pairs: Sequence[KeyValue]) -> FilesConfig:
        """Return the configuration that a transaction has read."""
        return self._take_over(self._shared.of(pairs), self._ns.clock.monotonic())

    def check(self, config: FilesConfig, pairs: Sequence[KeyValue]) -> None:
        """Raise `ConfigChanged` if a transaction that has failed has read another configuration."""
        if self.found(pairs).revision != config.revision:
            raise ConfigChanged

    async def with_current(self, work: Callable[[FilesConfig], Awaitable[T]]) -> T:
        """Do something with the configuration; again if that was changed meanwhile."""
        for _ in range(MAX_CHANGES):
            config = await self()
            try:
                return await work(config)
            except ConfigChanged:
                continue
        text = f"the configuration of files was changed during each of {MAX_CHANGES} attempts"
        raise TooBusy(text)

    def _take_over(self, stored: Stored[FilesConfig], now: float) -> FilesConfig:
        self._read_at = now
        self.last = replace(stored.value, revision=stored.revision)
        return self.last
