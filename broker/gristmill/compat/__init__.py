"""Gristmill behind the interfaces of other libraries. Each module needs what it is named after, and nothing else does.

joblib.py  a backend: `joblib.parallel_backend("gristmill")`
scaler.py  the names of opengris-scaler
ray.py     `remote`, `get`, `put` and `wait` for functions
"""
