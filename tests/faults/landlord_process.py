"""A landlord in a process of its own, spoken to over pipes. Run by the fault tests.

    python landlord_process.py asyncio|uvloop LEASES TERM_S

Reads `renew N` lines from standard input, and writes what happens: `ready`, `renewed N`,
`unknown N`, `ended N expired`.
"""

import asyncio
import sys

from leasehold import EndReason, FixedPolicy, Landlord, UnknownLease


def say(what: str) -> None:
    """Write a line at once."""
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def ended(number: int, reason: EndReason) -> None:
    """Hear from the landlord that a lease is over."""
    say(f"ended {number} {reason}")


async def main(leases: int, term_s: float) -> None:
    """Grant some leases, then do what standard input says."""
    numbers = iter(range(leases))
    landlord = Landlord(FixedPolicy(term_s), on_ended=ended, cookies=lambda: next(numbers))
    for number in range(leases):
        landlord.grant(number)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    say("ready")
    while line := await reader.readline():
        number = int(line.split()[1])
        try:
            landlord.renew(number)
        except UnknownLease:
            say(f"unknown {number}")
        else:
            say(f"renewed {number}")


if __name__ == "__main__":
    runner = asyncio.run
    if sys.argv[1] == "uvloop":
        import uvloop

        runner = uvloop.run
    runner(main(int(sys.argv[2]), float(sys.argv[3])))
