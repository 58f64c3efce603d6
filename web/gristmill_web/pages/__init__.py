"""One module a page: its blueprint, its fragment, its JSON."""
