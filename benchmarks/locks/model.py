"""Gray and Cheriton's model of what it costs to keep caches consistent by leases.

From *Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency* (1989).
Each of N clients reads its cached data R times in a second, and writes W times in a second; each
datum is in S caches. Reads come as a Poisson process.

- Without leases each read is checked: a request and an answer, `2NR` messages in a second.
- A term of t_s seconds at the server is one of t_c at the client, because the message that grants
  it takes a while, and clocks differ: `t_c = max(0, t_s - (m_prop + 2 m_proc) - ε)`.
- A read after the end of a term extends it, and begins a term in which `R t_c` reads more come free
  on average: `2NR / (1 + R t_c)` messages in a second.
- A write of data in S > 1 caches asks all others with one multicast message, and S - 1
  answer: `NSW` messages in a second. Where S is 1, the writer needs no approval.
"""

from dataclasses import dataclass
from typing import Final

MESSAGES_OF_A_CHECK: Final = 2


@dataclass(frozen=True, slots=True)
class Workload:
    """How often what is cached is used. The defaults are of the V system, as published."""

    reads_per_s: float = 0.864
    """R, of one client."""
    writes_per_s: float = 0.040
    """W, of one client."""
    sharing: int = 1
    """S: how many caches have it."""
    clients: int = 1
    """N."""


@dataclass(frozen=True, slots=True)
class Delays:
    """What a client's term is shorter by than the server's."""

    propagation_s: float = 0.0005
    """m_prop."""
    processing_s: float = 0.001
    """m_proc, at each end."""
    clock_error_s: float = 0.1
    """ε: what clocks may differ by."""


V: Final = Workload()
USUAL: Final = Delays()


def client_term_s(term_s: float, delays: Delays = USUAL) -> float:
    """t_c: for how long a client may use a term of the server."""
    lost_s = delays.propagation_s + 2 * delays.processing_s + delays.clock_error_s
    return max(0.0, term_s - lost_s)


def extensions_per_s(load: Workload, term_s: float, delays: Delays = USUAL) -> float:
    """Messages in a second that check or extend."""
    reads = load.clients * load.reads_per_s
    return MESSAGES_OF_A_CHECK * reads / (1 + load.reads_per_s * client_term_s(term_s, delays))


def approvals_per_s(load: Workload, term_s: float, delays: Delays = USUAL) -> float:
    """Messages in a second that ask other caches for their approval of a write."""
    if load.sharing == 1 or client_term_s(term_s, delays) == 0.0:
        return 0.0
    return load.clients * load.sharing * load.writes_per_s


def messages_per_s(load: Workload, term_s: float, delays: Delays = USUAL) -> float:
    """All consistency traffic at the server."""
    return extensions_per_s(load, term_s, delays) + approvals_per_s(load, term_s, delays)


def share_of_no_lease(load: Workload, term_s: float, delays: Delays = USUAL) -> float:
    """The same as a share of what there is with no lease at all."""
    return messages_per_s(load, term_s, delays) / messages_per_s(load, 0.0, delays)


def benefit(load: Workload) -> float:
    """Their factor alpha: where it exceeds 1, some term is better than none."""
    return 2 * load.reads_per_s / (load.sharing * load.writes_per_s)
