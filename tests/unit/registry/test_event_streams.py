"""Events, applied to what matched at the start, give what matches: with crashes and compactions."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from leasehold.errors import Compacted, ConnectionLost
from leasehold.registry.messages import item_of
from leasehold.registry.state import ItemVersion, Template, set_attributes
from leasehold.wire import registry_pb2 as pb
from tests.support.registry_stage import RegistryStage, about, moved_to, web

NORTH = Template(attributes=(about(area="north"),))
IDS = [f"00000000-0000-4000-8000-00000000000{digit}" for digit in range(6)]
AREAS = ("north", "south")
STEPS = 40


class Follower:
    """A listener that keeps the items that match, by their ids, with their endpoints."""

    def __init__(self, stage: RegistryStage, name: str) -> None:
        self._stage = stage
        self._name = name
        stage.listen(name, NORTH, ttl=1e6)
        self.items = self.looked_up()
        self._read = 0
        self._number = 0

    def looked_up(self) -> dict[str, str]:
        return {each.id: each.endpoint for each in self._stage.found(NORTH)}

    def read(self) -> None:
        """Apply the events that were received since the last time."""
        events = self._stage.inbox.events(self._name)
        for event in events[self._read :]:
            if event.number > self._number:  # else it is repeated
                self._number = event.number
                self._apply(pb.ItemEvent.FromString(event.payload))
        self._read = len(events)

    def _apply(self, event: pb.ItemEvent) -> None:
        if not event.transition:
            self.items = self.looked_up()
        elif event.transition == pb.MATCH_NOMATCH:
            self.items.pop(event.id, None)
        else:
            item = item_of(pb.ServiceItem.FromString(event.item))
            assert NORTH.matches(item)
            self.items[event.id] = item.endpoint


class Play:
    """Random changes of a few items, and troubles of the server and its listener."""

    def __init__(self, stage: RegistryStage, random: Random) -> None:
        self.stage = stage
        self._random = random
        self._versions: dict[str, ItemVersion] = {}

    def step(self) -> None:
        steps: list[Callable[[], object]] = [
            *[self._register] * 6,
            *[self._change] * 6,
            *[self._cancel] * 3,
            self._expire,
            self._crash,
            self._compact,
            self._miss,
            self._be_absent,
        ]
        self._random.choice(steps)()
        self.stage.pass_time(self._random.choice([0.0, 0.1, 6.0]))

    def _register(self) -> None:
        item_id = self._random.choice(IDS)
        fields = {"area": self._random.choice(AREAS)}
        item = web(item_id, f"{self._random.random()}", **fields)
        self._versions[item_id] = self.stage.register(item, self._random.choice([20.0, 3000.0]))

    def _live(self) -> ItemVersion | None:
        live = [self._versions[each] for each in sorted(self.stage.ids()) if each in IDS]
        return self._random.choice(live) if live else None

    def _change(self) -> None:
        if (version := self._live()) is not None:
            area = about(area=self._random.choice(AREAS))
            move = moved_to(f"{self._random.random()}")
            self.stage.change(version, lambda each: move(set_attributes(each, [area])))

    def _cancel(self) -> None:
        if (version := self._live()) is not None:
            assert self.stage.cancel(version) == 0.0

    def _expire(self) -> None:
        self.stage.pass_time(25.0)

    def _crash(self) -> None:
        self.stage.crash(self._random.choice([0.0, 30.0]))

    def _compact(self) -> None:
        with suppress(Compacted):  # it is already
            self.stage.run(self.stage.engine.compact, self.stage.revision)

    def _miss(self) -> None:
        """The index misses some changes."""
        self.stage.lookup()
        self.stage.faulty.is_deaf = True
        for _ in range(2):
            item_id = self._random.choice(IDS)
            item = web(item_id, f"{self._random.random()}", area=self._random.choice(AREAS))
            storage = self.stage.second_service().storage
            self._versions[item_id] = self.stage.run(storage.register, item, 3000.0)
        self.stage.faulty.is_deaf = False
        self.stage.faulty.break_watches(Compacted(1, self.stage.revision))
        self.stage.pass_time(5.0)

    def _be_absent(self) -> None:
        """The listener does not answer for a while."""
        if not self.stage.inbox.errors.pop("l", None):
            self.stage.inbox.errors["l"] = ConnectionLost("the listener does not answer")


@pytest.mark.parametrize("seed", range(12))
def test_every_stream_applied_to_its_start_gives_the_matching_set(seed: int) -> None:
    with RegistryStage(seed) as stage:
        play = Play(stage, Random(seed))
        for _ in range(5):
            play.step()
        stage.inbox.errors.clear()
        follower = Follower(stage, "l")
        for _ in range(STEPS):
            play.step()
            follower.read()
        stage.inbox.errors.clear()
        stage.pass_time(400.0)
        follower.read()
        assert follower.items == follower.looked_up()
