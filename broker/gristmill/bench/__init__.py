"""`gristmill bench`: what a task costs here, beside a process pool on the same machine in the same minutes."""
