"""`gristmill up`: a whole installation on this machine, from one command line or one TOML file."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, ClassVar

import click
from pydantic import Field

from gristmill.cli import epilog, exits
from gristmill.cores import cores
from gristmill.errors import ConnectionLostError, RedisRefusedError
from gristmill.settings import CONFIG_VARIABLE, Settings, WebSettings, load, options, read_file

if TYPE_CHECKING:
    from gristmill.cluster import LocalCluster

POLL_SECONDS = 0.2
RESTART_SECONDS = 1.0
"""A program that ends by itself is started again, but not more often than this."""


class UpSettings(Settings):
    """What `gristmill up` may be told."""

    table: ClassVar[str] = "up"

    workers: int = Field(default_factory=cores, ge=0, le=1024, description="How many workers.")
    concurrency: int = Field(
        default=0, ge=0, le=1024,
        description="How many tasks each worker executes at the same time; 0 means what [worker] says, or else 1.",
    )  # fmt: skip
    schedulers: int = Field(default=1, ge=0, le=64, description="How many scheduler replicas.")
    web: bool = Field(default=True, description="Whether to start the status page.")
    host: str = Field(default="", description="Address for the page; empty means what [web] says, or else 127.0.0.1.")
    port: int | None = Field(
        default=None, ge=0, le=65535,
        description="Port for the page; 0 takes a free one. Not given means what [web] says, or else 8700.",
    )  # fmt: skip
    data: str = Field(default="", description="Folder for the embedded Redis's data; without it they go at the end.")
    redis_port: int | None = Field(
        default=None, ge=0, le=65535,
        description="Port on 127.0.0.1 for the embedded Redis besides its unix socket; 0 takes a free one.",
    )  # fmt: skip


@click.command(
    epilog=epilog(
        "gristmill up                                  a worker for each core, a scheduler, the page",
        "gristmill up --workers 4 --concurrency 2 --schedulers 2",
        "gristmill up --data ~/gristmill               and keep what was submitted for the next time",
        "gristmill up --redis redis://db:6379/0        with a Redis that runs already",
        "gristmill up --config gristmill.toml          all of it from a file:",
        "",
        "  [up]",
        "  workers = 4",
        '  data = "/var/lib/gristmill"',
        "  [worker]",
        "  concurrency = 2",
        '  capabilities = "linux,gpu=1"',
        "  [web]",
        "  port = 8700",
    )
)
@options(UpSettings)
@click.pass_context
def command(context: click.Context, settings: UpSettings) -> int:
    """Run Redis, schedulers, workers and the page together, until Ctrl-C or SIGTERM.

    All of it ends together. A scheduler, worker or page that ends by itself is started again. Settings of the
    programs that have no option here come from the tables [scheduler], [worker] and [web] of the file, or from the
    environment.
    """
    from gristmill.cluster import LocalCluster
    from gristmill.interrupts import one_interrupt

    config = context.params.get("config")
    if config:
        os.environ[CONFIG_VARIABLE] = os.path.abspath(config)
    os.environ["GRISTMILL_LOG_FORMAT"] = settings.log_format
    web = load(WebSettings, {"host": settings.host or None, "port": settings.port}, config, strict=False)
    try:
        with (
            one_interrupt(),
            LocalCluster(
                workers=settings.workers,
                concurrency=settings.concurrency or _worker_concurrency(config),
                schedulers=settings.schedulers,
                redis=settings.redis or None,
                web=settings.web,
                namespace=settings.namespace,
                web_host=web.host,
                web_port=web.port,
                redis_port=settings.redis_port,
                directory=settings.data or None,
                log_level=settings.log_level,
            ) as cluster,
        ):
            _announce(cluster)
            if _watch(cluster):
                click.echo("gristmill up: a client has ended everything")
                return exits.OK
    except KeyboardInterrupt:
        return exits.OK
    click.echo("gristmill up: the embedded Redis ended by itself", err=True)
    return exits.FAILED


def _worker_concurrency(config: str | None) -> int:
    from gristmill.settings import WorkerSettings

    # Not the worker's own default, one for each core: there is a worker for each core already.
    said = config and "concurrency" in read_file(WorkerSettings, config)
    return load(WorkerSettings, {}, config).concurrency if said else 1


def _announce(cluster: LocalCluster) -> None:
    from gristmill.store.connection import hide_password

    def some(number: int, what: str) -> str:
        return f"{number} {what}{'s'[: number != 1]}"

    click.echo(f"Gristmill is up: {some(len(cluster.workers), 'worker')}, {some(len(cluster.schedulers), 'scheduler')}")
    if cluster.web_url:
        click.echo(f"  page   {cluster.web_url}")
    if cluster.redis and cluster.redis.port_address:
        click.echo(f"  Redis  {cluster.redis.port_address}")
    click.echo(f"  Redis  {hide_password(cluster.address)}")
    # Of a given Redis the user has the address, which may hold a password that does not belong on a screen.
    lines = [f"  export GRISTMILL_REDIS={cluster.address}"] if cluster.redis else []
    if cluster.namespace != "default":
        lines.append(f"  export GRISTMILL_NAMESPACE={cluster.namespace}")
    if lines:
        click.echo("\n".join(("Submit to it from another terminal after:", *lines)))
    click.echo("Ctrl-C ends all of it.")


def _watch(cluster: LocalCluster) -> bool:
    """Start again what ends by itself; returns when the embedded Redis is gone, without which nothing works, and when
    a client has ended everything: then it answers True.
    """
    while cluster.redis is None or cluster.redis.running:
        time.sleep(POLL_SECONDS)
        for program in cluster.processes:
            if program.poll() is not None:
                try:
                    if program.returncode == 0 and cluster.was_shut_down():
                        return True
                except (ConnectionLostError, RedisRefusedError):
                    continue  # it is asked again once Redis is there
                name = cluster.name_of(program)
                click.echo(
                    f"gristmill up: {name} ended with exit code {program.returncode}; starting it again", err=True
                )
                time.sleep(RESTART_SECONDS)
                cluster.replace(program)
    return False
