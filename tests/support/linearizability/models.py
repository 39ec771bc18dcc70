"""A key as etcd's data model has it, as far as answers have told it.

Every write takes a revision that is higher than any before it, in the whole store. The revision of
a write without a response is unknown at first, and a later read may tell it. So a state holds
spans of revisions, and each answer makes them narrower: a state stands for all keys that agree with
what was told up to now, and a step gives nothing if none of them agrees with its answer, too.
"""

from typing import Final, NamedTuple

UNBOUNDED: Final = 2**63 - 1
"""Above every revision."""
EMPTY_STORE: Final = 1
"""The revision of a store that was never written to."""


class Span(NamedTuple):
    """The revisions that something may have, both ends included."""

    least: int
    most: int

    def __str__(self) -> str:
        if self.least == self.most:
            return str(self.least)
        if self.most == UNBOUNDED:
            return f"{self.least} or more"
        return f"{self.least} to {self.most}"


NO_REVISION: Final = Span(0, 0)


class KeyState(NamedTuple):
    """A key, present or absent, at one moment."""

    value: bytes | None = None
    """None: the key is absent."""
    version: int = 0
    mod: Span = NO_REVISION
    create: Span = NO_REVISION
    store: int = EMPTY_STORE
    """The least revision that the whole store can be at; the next write takes a higher one."""

    def __str__(self) -> str:
        if self.value is None:
            return f"absent (store at {self.store} or more)"
        return (
            f"{self.value!r} (mod {self.mod}, version {self.version}, created {self.create},"
            f" store at {self.store} or more)"
        )

    def written(self, value: bytes, at: Span) -> "KeyState | None":
        """Put a value, at one of these revisions."""
        mod = self._next(at)
        if mod is None:
            return None
        if self.version == 0:
            return KeyState(value, 1, mod, mod, mod.least)
        create = self.create
        if create.most > mod.most - self.version:  # there was a revision for each version
            create = Span(create.least, mod.most - self.version)
        return KeyState(value, self.version + 1, mod, create, mod.least)

    def deleted(self, at: Span) -> "KeyState | None":
        """Delete the key, if it is present, at one of these revisions."""
        mod = self._next(at)
        return None if mod is None or self.version == 0 else KeyState(store=mod.least)

    def _next(self, at: Span) -> Span | None:
        """Those of the revisions that the next write can have."""
        if at.least > self.store:
            return at
        return Span(self.store + 1, at.most) if at.most > self.store else None

    def told(
        self, *, store: int | None = None, mod: int | None = None, create: int | None = None
    ) -> "KeyState | None":
        """Take in what an answer told, None being not told; itself if that is nothing new."""
        at, mods, creates = self.store, self.mod, self.create
        if store is not None:
            if store < at:
                return None
            at = store
            mods = Span(mods.least, min(mods.most, store))
        if mod is not None:
            mods = Span(max(mods.least, mod), min(mods.most, mod))
        if create is not None:
            creates = Span(max(creates.least, create), min(creates.most, create))
        if mods == self.mod and creates == self.create:
            return self if at == self.store else self._replace(store=at)
        return self._narrowed(mods, creates, at)

    def _narrowed(self, mod: Span, create: Span, store: int) -> "KeyState | None":
        if self.version:
            between = self.version - 1
            mod = Span(max(mod.least, create.least + between), mod.most)
            create = Span(create.least, min(create.most, mod.most - between))
        if self.version == 1:  # its first write is its last
            mod = create = Span(max(mod.least, create.least), min(mod.most, create.most))
        if mod.least > mod.most or create.least > create.most:
            return None
        return KeyState(self.value, self.version, mod, create, max(store, mod.least))


ABSENT: Final = KeyState()
