"""Locks and the recipes built on them. They run in the client, on any engine.

A lock is read in this order: its keys and values (`lock_keys`), one key in a queue (`queue`), the
queue of a lock (`lock_queue`), the local callers that wait in it (`lock_contender`), the state of a
lock in a client (`client_lock`), its cache and guards (`ownership`), and the handle that programs
use (`lock`). `lock_count` counts acquisitions. Read-write locks, semaphores, barriers and elections
are built on `queue` as well, and not on locks.
"""
