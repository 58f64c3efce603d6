"""Redis itself: how to reach it, and an embedded server for those who have none."""
