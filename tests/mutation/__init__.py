"""Guard mutation: takes each guard out of each Lua script in turn; some test must notice every time."""
