"""The pure part: state machines that do no I/O, read no clock and draw no random number.

Time comes in as an argument (or through `LeaseClock.advance`), so that every rule can be tested in
virtual time. `tests/unit/test_core_is_pure.py` keeps it so.
"""
