"""Which streams of the past a frame may still be for (RFC 9113, section 5.1).

A number that is not open, and not above the last one that was used, belongs to one of three kinds:

- *ended here*: we ended or reset the stream while the peer had more to say. What it says may have
  been on its way, and is ignored. Their number is limited; the oldest are forgotten first, and then
  count as ended there.
- *ended there*: the peer ended or reset it, and must not say anything more.
- *skipped*: a number was left out, and must never be used. Only gaps are noted, because there are
  none as long as a peer counts as everybody does.
"""

from collections import OrderedDict
from typing import Final

MAX_ENDED_HERE: Final = 1024
MAX_GAPS: Final = 64


class ClosedStreams:
    """Remembers streams that are over, as far as it matters."""

    __slots__ = ("_ended_here", "_gaps", "skipped")

    def __init__(self) -> None:
        self._ended_here: OrderedDict[int, None] = OrderedDict()
        self._gaps: list[range] = []
        self.skipped = 0
        """By how much the highest number is higher than if none had been left out."""

    def end_here(self, stream_id: int) -> None:
        """Note a stream that ended although its peer had more to say."""
        self._ended_here[stream_id] = None
        if len(self._ended_here) > MAX_ENDED_HERE:
            self._ended_here.popitem(last=False)

    def end_there(self, stream_id: int) -> None:
        """Note that the peer has nothing more to say on a stream."""
        self._ended_here.pop(stream_id, None)

    def skip(self, numbers: range) -> None:
        """Note that these numbers were left out."""
        self._gaps.append(numbers)
        self.skipped += 2 * len(numbers)
        if len(self._gaps) > MAX_GAPS:
            del self._gaps[0]

    def ended_here(self, stream_id: int) -> bool:
        """Whether frames for this stream are to be ignored."""
        return stream_id in self._ended_here

    def was_skipped(self, stream_id: int) -> bool:
        """Whether the number was left out."""
        return any(stream_id in gap for gap in self._gaps)
