"""H40, H86 to H88: passwords, ways to Redis, signatures, and releases that meet."""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from gristmill import Client, GristmillError, LocalCluster, SignatureError
from gristmill.errors import AddressError
from gristmill.protocol import signing
from gristmill.protocol.keys import Keys
from support import tasks
from support.database import Database
from support.leaks import Leaks
from support.programs import Programs
from support.server import RedisServer, free_port
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]

PASSWORD = "p#s/s+w=o%r@d:1"


@pytest.fixture
def guarded() -> Iterator[RedisServer]:
    """A Redis with a password, a user of its own, a unix socket and a TCP port."""
    server = RedisServer(port=free_port())
    server.start()
    server.command("ACL", "SETUSER", "miller", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    server.command("CONFIG", "SET", "requirepass", PASSWORD)
    yield server
    server.discard()


@pytest.fixture
def tls_port(guarded: RedisServer, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A port that speaks TLS and leads to the guarded Redis, and the certificate to trust."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def relay(accepted: socket.socket) -> None:
        with accepted, socket.socket(socket.AF_UNIX) as behind, contextlib.suppress(OSError):
            behind.connect(str(guarded.socket))
            with context.wrap_socket(accepted, server_side=True) as inside:
                back = threading.Thread(target=pump, args=(behind, inside), daemon=True)
                back.start()
                pump(inside, behind)
                back.join()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                threads.append(threading.Thread(target=relay, args=(accepted,), daemon=True))
                threads[-1].start()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    yield int(listener.getsockname()[1]), certificate
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    server.join(10)
    for thread in threads:
        thread.join(10)


@pytest.mark.parametrize("way", ["tcp with a user", "unix socket", "TLS with a user"])
def test_h40_every_way_to_redis_and_every_password_works(
    no_leaks: Leaks, guarded: RedisServer, tls_port: tuple[int, Path], way: str
) -> None:
    """A password full of special characters, percent-encoded: over TCP, a unix socket and TLS, with a user name and
    without, all four programs start and a task runs."""
    port, certificate = tls_port
    word = quote(PASSWORD, safe="")
    address = {
        "tcp with a user": f"redis://miller:{word}@127.0.0.1:{guarded.port}/0",
        "unix socket": f"unix://:{word}@{guarded.socket}",
        "TLS with a user": f"rediss://miller:{word}@localhost:{port}/0?ssl_ca_certs={certificate}",
    }[way]
    with LocalCluster(workers=1, redis=address, web=True, namespace="ways") as cluster, Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=60) == 1
        assert PASSWORD not in repr(client) + repr(cluster)
        assert word not in repr(client) + repr(cluster)


def test_h40_a_malformed_address_is_one_line_without_the_password() -> None:
    """What is no address is refused in one line that does not show what may be a password."""
    with pytest.raises(AddressError) as caught:
        Client(f"redis//miller:{PASSWORD}@127.0.0.1:6379")
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_h87_the_password_is_shown_nowhere(guarded: RedisServer, tmp_path: Path, no_leaks: Leaks) -> None:
    """All programs at debug level, with the right password, a wrong one, and without a Redis: no log, no command line,
    no exception, no repr and no key has it."""
    word = quote(PASSWORD, safe="")
    right = f"redis://miller:{word}@127.0.0.1:{guarded.port}/0"
    wrong = right.replace(word, f"{word}x")
    away = f"redis://miller:{word}@127.0.0.1:{free_port()}/0"
    programs = Programs(right, Keys("secret"), tmp_path)
    programs.environment["GRISTMILL_LOG_LEVEL"] = "debug"
    shown: list[str] = []
    try:
        for address in (wrong, away):
            programs.address = address
            for name in ("scheduler", "worker", "web", "status", "doctor"):
                options = ("--port", "0") if name == "web" else ()
                programs.start(name, *options)
            with pytest.raises(GristmillError) as caught:
                Client(address, connect_timeout=1)
            shown.append(repr(caught.value) + str(caught.value.__cause__))
        programs.address = right
        programs.scheduler()
        programs.worker()
        programs.start("web", "--port", "0")
        with programs.client(connect_timeout=120.0) as client:  # a dozen programs start at the same time
            error = client.submit(tasks.raise_value_error, "x").exception(timeout=120)
            shown += [repr(client), repr(error), repr(client.submit(abs, -1))]
        running = [psutil.Process(program.pid) for program in programs.started if program.running()]
        running += [child for process in running for child in process.children(recursive=True)]
        assert len(running) >= 4
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                shown.append(" ".join(process.cmdline()))
        with contextlib.closing(Database(right)) as database:
            shown += database.keys("gm:")
    finally:
        programs.stop()
    shown += [program.log for program in programs.started]
    assert sum(map(len, shown)) > 3000
    for secret in (PASSWORD, word):
        assert not [text for text in shown if secret in text]


def test_h88_what_a_newer_release_has_sent_waits_for_one_that_understands_it(
    start_cluster: Starter, database: Database
) -> None:
    """A request of a newer version is left for others, and not thrown away; work of this release goes on beside it.
    (So half of the processes may be of the next release, for as long as an upgrade takes.)"""
    cluster = start_cluster()
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=30) == 1
        entry = database.run("XADD", cluster.keys.results(), "*", "outcomes", '{"version":99,"worker":"w","what":1}')
        assert client.map(abs, range(-200, 0), timeout=60) == list(range(200, 0, -1))
        wait_until(
            lambda: [one.id for one in database.stream(cluster.keys.results())] == [entry.decode()],
            "all that this release understands is applied, and what it does not is left",
        )
        assert database.length(cluster.keys.quarantine()) == 0
        database.run("XDEL", cluster.keys.results(), entry)
        database.run("XACK", cluster.keys.results(), "schedulers", entry)
    assert all(program.poll() is None for program in cluster.processes)
    wait_until(lambda: not database.zset(cluster.keys.clients()), "the client is gone")


def test_h86_what_was_altered_in_redis_is_refused_before_it_is_unpickled(
    start_cluster: Starter, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a signing key the call of a waiting task is replaced in its record: the future fails saying so, and what
    was planted does nothing. (Functions, results, exceptions and objects: see `integration/test_signing.py`.)"""
    monkeypatch.setenv(signing.VARIABLE, "k" * 40)
    monkeypatch.setattr(signing, "off", False)
    proof = tmp_path / "proof"

    class Planted:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(proof),))

    cluster = start_cluster(workers=0)
    with Client(cluster) as client:
        future = client.submit(abs, -1)
        client.flush(timeout=30)
        record = cluster.keys.task(future.task_id)
        wait_until(lambda: "call" in database.hash(record), "the record is there", timeout=30)
        planted = base64.b64encode(pickle.dumps(Planted())).decode()
        assert len(planted) > 0
        database.run("HSET", record, "call", planted)
        cluster.add_worker()
        with pytest.raises(SignatureError):
            future.result(timeout=60)
        assert client.submit(abs, -2).result(timeout=30) == 2
    assert not proof.exists()


def test_h86_without_a_key_a_worker_warns_of_a_remote_redis_without_a_password(programs: Programs) -> None:
    """At start a worker says in one line that whoever reaches that Redis can have code run here."""
    programs.address = "redis://192.0.2.1:6379"  # an address for documentation: nobody answers there
    worker = programs.worker()
    wait_until(lambda: "signing key" in worker.log, "the worker warns", timeout=60)
    worker.kill()
