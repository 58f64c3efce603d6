"""`python -m gristmill_web.passwords NAME`: a line for the password file of the page."""

from __future__ import annotations

import click
from werkzeug.security import generate_password_hash

from gristmill_web.identity import NAME, ROLES, VIEWER


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default=VIEWER, show_default=True, help="What the account may do.")
@click.password_option(help="Asked for when it is not given.")
def command(name: str, role: str, password: str) -> None:
    """Print a line for the file of `gristmill web --password-file`: NAME, role and a hash of the password."""
    if not NAME.match(name):
        raise click.UsageError(f"expected letters, digits, '_', '.', '@' or '-'; got {name!r}; choose another name")
    click.echo(f"{name}:{role}:{generate_password_hash(password, method='scrypt:32768:8:1')}")


if __name__ == "__main__":
    command(prog_name="python -m gristmill_web.passwords")
