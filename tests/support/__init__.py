"""What the tests share: a Redis server, a reader of what lies in it, waiting, checks, and tasks that misbehave."""
