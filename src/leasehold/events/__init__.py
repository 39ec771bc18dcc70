"""Events for listeners that may be absent: queues, delivery, mailboxes."""
