"""The status page, its JSON API and the metrics."""
