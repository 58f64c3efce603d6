"""What travels: the names of keys, the shapes of messages, the states of a task. Nothing here does I/O."""
