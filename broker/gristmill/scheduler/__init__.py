"""The scheduler: a loop without state, replicated at will.

`loop` reads the request streams and applies each request as one script of `gristmill.transitions`; the controllers
(`clients`, `objects`, `graphs`, `tasks`, `workers`, `balance`, `information`, `scaling`, `leases`) say which requests
belong to them and which duties recur. Everything that must survive lies in Redis.
"""
