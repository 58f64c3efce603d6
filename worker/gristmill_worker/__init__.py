"""The worker: an agent that starts and watches processors, which run the tasks."""
