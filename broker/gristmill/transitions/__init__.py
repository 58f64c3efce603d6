"""The atomic steps: one Lua file a verb, and the only caller of Lua in the project."""

from __future__ import annotations

from typing import Any

from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import Request
from gristmill.store.connection import Connection, ReplyError, pack
from gristmill.transitions.loader import all_scripts

SCRIPT_OF: dict[Request, str] = {
    Request.CLIENT: "register_client",
    Request.TASKS: "submit",
    Request.DEPEND: "depend",
    Request.OUTCOMES: "result",
    Request.CONFIRMS: "confirm",
    Request.RETURNED: "return",
    Request.OUTPUT: "output",
    Request.HELD: "held",
    Request.CANCEL: "cancel",
    Request.KNOWN: "known",
    Request.SUSPENDED: "suspend",
    Request.CLAIM: "claim",
    Request.RELEASE: "release",
    Request.DISCONNECT: "disconnect_client",
    Request.WATCH: "watch",
    Request.CANCEL_CLIENT: "cancel_client",
    Request.RETRY: "retry",
    Request.ORDER_WORKER: "order_worker",
    Request.PAUSE: "pause",
    Request.SHUTDOWN: "shutdown",
    Request.WORKER: "register_worker",
    Request.BEAT: "heartbeat",
    Request.CLIENT_BEAT: "renew_client",
    Request.DRAIN: "drain",
    Request.LEAVE: "leave",
    Request.END_CLIENT: "end_client",
    Request.END_WORKER: "end_worker",
    Request.RESOLVE: "resolve",
    Request.DROP_USES: "drop_uses",
}
"""The script that applies each kind of request."""

DUTIES = (
    "sweep",
    "promote",
    "dispatch_waiting",
    "balance",
    "trim",
    "remove_consumer",
    "retire_lane",
    "set_intake",
    "set_aside",
    "check_tasks",
    "check_clients",
    "check_members",
    "check_loads",
    "check_entries",
    "check_objects",
    "check_leftovers",
    "recount",
    "run_alone",
)
"""Scripts that no request asks for."""

EARLY, NEWER = b"early", b"newer"
"""Words of scripts that have written nothing: something else must be applied first; only a newer release can."""


class Scripts:
    """The scripts of one namespace, as commands ready to be sent."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        scripts = all_scripts()
        self._prefix = keys.prefix.encode()
        self._sha_of_kind = {kind.value.encode(): scripts[name].sha.encode() for kind, name in SCRIPT_OF.items()}
        self._sha = {name: script.sha.encode() for name, script in scripts.items()}

    def load(self, connection: Connection) -> None:
        """Load every script into the server's cache, which a restart or SCRIPT FLUSH empties."""
        scripts = all_scripts().values()
        connection.send(*(pack(("SCRIPT", "LOAD", script.source)) for script in scripts))
        for script in scripts:
            reply = connection.read()
            if isinstance(reply, ReplyError):
                raise ReplyError(f"{reply} (script {script.name})")

    def request(self, stream: bytes, kind: bytes, entry: bytes, body: bytes) -> bytes | None:
        """The command that applies one entry of a request stream, or None when the kind is unknown."""
        sha = self._sha_of_kind.get(kind)
        if sha is None:
            return None
        return pack((b"EVALSHA", sha, b"2", self._prefix, stream, entry, body))

    def duty(self, name: str, *arguments: Any) -> bytes:
        """The command that runs a duty."""
        return pack((b"EVALSHA", self._sha[name], b"1", self._prefix, *arguments))

    def request_duty(self, name: str, stream: str, *arguments: Any) -> bytes:
        """The command that runs a duty on a request stream."""
        return pack((b"EVALSHA", self._sha[name], b"2", self._prefix, stream, *arguments))

    def apply(self, connection: Connection, command: bytes) -> str:
        """Run one command and return the script's word; loads the scripts when the server does not know them."""
        connection.send(command)
        reply = connection.read()
        if isinstance(reply, ReplyError) and reply.code == "NOSCRIPT":
            self.load(connection)
            connection.send(command)
            reply = connection.read()
        if isinstance(reply, ReplyError):
            raise reply
        return bytes(reply).decode()
