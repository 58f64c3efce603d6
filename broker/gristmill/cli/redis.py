"""`gristmill redis`: the embedded Redis alone, in the foreground."""

from __future__ import annotations

import time

import click

from gristmill.cli import epilog, exits

POLL_SECONDS = 0.2


@click.command(
    epilog=epilog(
        "gristmill redis                                   for this machine, by a unix socket",
        "gristmill redis --port 6380                       and on 127.0.0.1:6380",
        "gristmill redis --port 6380 --data ~/gristmill    and keep the data",
    )
)
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="NUMBER", envvar="GRISTMILL_REDIS_PORT",
    help="Listen on 127.0.0.1 too; 0 takes a free port. Whoever on this machine reaches it can run code in the "
    "workers. [default: none; environment: GRISTMILL_REDIS_PORT]",
)  # fmt: skip
@click.option(
    "--data", type=click.Path(file_okay=False), metavar="FOLDER", envvar="GRISTMILL_DATA",
    help="Keep the data in this folder. Without it the data goes when the server ends. "
    "[default: none; environment: GRISTMILL_DATA]",
)  # fmt: skip
def command(port: int | None, data: str | None) -> int:
    """Run only the embedded Redis, until Ctrl-C or SIGTERM.

    Takes redis-server or valkey-server from PATH, or the one that the extra `embedded` installs. It writes every
    change to disk once a second and never evicts.
    """
    from gristmill.interrupts import one_interrupt
    from gristmill.store.embedded import EmbeddedRedis

    server = EmbeddedRedis(port=port, directory=data)
    try:
        with one_interrupt(), server:
            click.echo(f"Redis is up: {server.binary}")
            for address in filter(None, (server.port_address, server.address)):
                click.echo(f"  export GRISTMILL_REDIS={address}")
            click.echo("Ctrl-C ends it" + (f"; the data stays in {server.directory}." if data else ", and its data."))
            while server.running:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        return exits.OK
    click.echo("gristmill redis: the server ended by itself", err=True)
    return exits.FAILED
