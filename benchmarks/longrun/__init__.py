"""What loads need that run for minutes: nothing in them may grow with time, but counters."""
