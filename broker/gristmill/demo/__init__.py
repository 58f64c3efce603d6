"""`gristmill demo`: measure every function of a Python installation, in parallel, on an embedded Redis."""
