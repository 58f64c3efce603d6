"""Charts as data: where bars and lines lie, pure and bounded; templates only write them down as SVG."""
