"""Settings of the programs: command line > environment `GRISTMILL_*` > TOML file > default.

A TOML file (`--config FILE`, or `GRISTMILL_CONFIG`) has what all programs share at the top and a table for each:

    redis = "redis://localhost:6379/0"

    [worker]
    concurrency = 4

Every field is one command-line option, so a program gets its settings in one line:

    @click.command()
    @options(WorkerSettings)
    def command(settings: WorkerSettings) -> None: ...
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import click
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from gristmill.cores import cores
from gristmill.errors import AddressError, SettingError
from gristmill.protocol.keys import check_namespace
from gristmill.store.connection import check_address

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

ENVIRONMENT_PREFIX = "GRISTMILL_"
CONFIG_VARIABLE = "GRISTMILL_CONFIG"
TABLES = ("up", "scheduler", "worker", "web")
ANY_VALUE = -1
"""The value of a capability that is either there or not."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{0,64}\Z")
_CAPABILITY = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_PYTHON_TAG = re.compile(r"python[0-9.]+\Z")


def parse_capabilities(value: object) -> object:
    """`linux,gpu=1` to `{"linux": -1, "gpu": 1}`; what is not text is left to the model."""
    if not isinstance(value, str):
        return value
    capabilities = {}
    for item in filter(None, (piece.strip() for piece in value.split(","))):
        name, equals, number = (part.strip() for part in item.partition("="))
        if not _CAPABILITY.match(name) or (equals and not re.match(r"-?[0-9]{1,9}\Z", number)):
            raise ValueError(
                f"expected capabilities such as linux,gpu=1 (letters, digits, '-', '_' or '.'; a whole number); "
                f"got {item!r}; correct that one"
            )
        if _PYTHON_TAG.match(name):
            raise ValueError(
                f"expected capabilities other than the Python version; got {item!r}; leave it out: a worker offers the "
                "version of the interpreter that runs it"
            )
        capabilities[name] = int(number) if equals else ANY_VALUE
    return capabilities


def _check_name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError(
            f"expected a name of at most 64 letters, digits, '-', '_' or '.'; got {value!r}; choose another --name"
        )
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Settings(BaseModel):
    """What all programs share. Made by `load`: alone, a class knows what it is given and its defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)
    table: ClassVar[str] = ""
    """The table of the TOML file that belongs to the program."""

    redis: str = Field(
        default="",
        description="Address of Redis: redis://, rediss://, unix:// or redis+sentinel://. "
        "A password is safer in the environment variable than on the command line.",
    )
    namespace: str = Field(
        default="default", description="Which installation in this Redis; programs of one namespace work together."
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        default="info", description="How much is logged to standard error."
    )
    log_format: Annotated[Literal["plain", "json"], BeforeValidator(_lower)] = Field(
        default="plain", description="plain for people, json for collectors: one object a line."
    )

    @field_validator("redis")
    @classmethod
    def _check_redis(cls, value: str) -> str:
        return check_address(value) if value else value

    @field_validator("namespace")
    @classmethod
    def _check_namespace(cls, value: str) -> str:
        return check_namespace(value)

    @property
    def address(self) -> str:
        """The address of Redis; SettingError when none was given."""
        if not self.redis:
            raise SettingError(
                "expected the address of a Redis; got none; give --redis redis://localhost:6379/0 or set "
                "GRISTMILL_REDIS, or run `gristmill up`, which brings its own"
            )
        return self.redis


class HealthSettings(Settings):
    """What programs share that have no page to answer for their health."""

    health_port: int = Field(
        default=-1,
        ge=-1,
        le=65535,
        description="Port on which /healthz and /readyz answer; 0 takes a free one and logs it, -1 is none.",
    )
    health_host: str = Field(default="127.0.0.1", description="Address on which /healthz and /readyz answer.")


class SchedulerSettings(HealthSettings):
    """What a scheduler replica may be told."""

    table: ClassVar[str] = "scheduler"

    name: str = Field(default="", description="A name for logs and the page; a part of the replica's id.")
    sweep_seconds: float = Field(
        default=1.0,
        ge=0.05,
        le=60,
        description="How often expired workers, clients and due retries are looked for; longer notices deaths later.",
    )
    takeover_seconds: float = Field(
        default=2.0,
        ge=0.1,
        le=600,
        description="How long a request may lie with a replica that does not answer before another applies it.",
    )
    max_tasks_waiting: int = Field(
        default=0, ge=0, description="New tasks are refused while more than this many wait; 0 means no limit."
    )
    allocation: Annotated[Literal["capability", "even_load"], BeforeValidator(_lower)] = Field(
        default="capability", description="How tasks are spread over workers; even_load ignores capabilities."
    )
    protected: bool = Field(
        default=True, description="Whether clients are refused that want to shut everything down (Client.shutdown)."
    )

    _valid_name = field_validator("name")(_check_name)


class WorkerSettings(HealthSettings):
    """What a worker may be told."""

    table: ClassVar[str] = "worker"

    name: str = Field(default="", description="A name for logs and the page; a part of the worker's id.")
    concurrency: int = Field(
        default_factory=cores,
        ge=1,
        le=1024,
        description="How many tasks it executes at the same time, each in a processor of its own.",
    )
    capabilities: Annotated[dict[str, int], BeforeValidator(parse_capabilities)] = Field(
        default_factory=dict,
        description="What tasks may ask for, such as linux,gpu=1; the number is only shown: tasks match by name.",
    )
    queue_size: int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="At most so many tasks wait at the worker; long tasks wait at the schedulers anyway.",
    )
    max_processors: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="At most so many processors, those counted too whose task waits for tasks of its own; "
        "0 means twice the concurrency, and at least 4 more than it.",
    )
    worker_lease_seconds: float = Field(
        default=15.0,
        ge=1,
        le=3600,
        description="Silence after which a worker counts as dead and its tasks move on; "
        "too short and a busy machine loses healthy workers.",
    )
    drain_seconds: float = Field(
        default=0.0,
        ge=0,
        description="How long executing tasks may take to finish after SIGTERM; 0 means no limit.",
    )
    cancel_grace_seconds: float = Field(
        default=2.0,
        ge=0,
        le=3600,
        description="How long a cancelled task may take to end after its interrupt before its processor is killed.",
    )
    object_directory: str = Field(
        default="",
        description="Where large objects lie in files that processors share; "
        "by default /dev/shm when 1 GiB is free there, else the folder for temporary files.",
    )
    object_cache_mib: int = Field(
        default=4096, ge=0, description="What these files may take together; larger objects are fetched for each task."
    )
    preload: str = Field(
        default="",
        description="A module, or module:function(arguments), that each processor loads before its first task.",
    )

    _valid_name = field_validator("name")(_check_name)

    @property
    def most_processors(self) -> int:
        """How many processors there may be at once."""
        return self.max_processors or self.concurrency + max(4, self.concurrency)

    @field_validator("max_processors")
    @classmethod
    def _check_max_processors(cls, value: int, info: ValidationInfo) -> int:
        concurrency = info.data.get("concurrency", 1)
        if value and value < concurrency:
            raise ValueError(
                f"expected at least the concurrency, {concurrency}; got {value}; raise it, lower the concurrency, "
                "or leave it out"
            )
        return value

    @field_validator("capabilities")
    @classmethod
    def _check_capabilities(cls, value: dict[str, int]) -> dict[str, int]:
        for name in value:
            if not _CAPABILITY.match(name):
                raise ValueError(
                    f"expected names of at most 64 letters, digits, '-', '_' or '.'; got {name!r}; rename it"
                )
        return value


class WebSettings(Settings):
    """What the status page may be told."""

    table: ClassVar[str] = "web"

    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; one that others can reach needs something that says who they are.",
    )
    port: int = Field(default=8700, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    refresh_seconds: float = Field(default=2.0, ge=0.2, le=3600, description="How often the page asks for news.")


AnySettings = TypeVar("AnySettings", bound=Settings)


def load(
    cls: type[AnySettings], given: Mapping[str, Any] | None = None, config: str | None = None, *, strict: bool = True
) -> AnySettings:
    """Settings from what was `given` (None = not given), the environment and the file.

    Raises SettingError when one is wrong, and when the table of the file has an unknown one, unless `strict` is off.
    """
    given = {name: value for name, value in (given or {}).items() if value is not None}
    from_file = read_file(cls, config, strict=strict) if config else {}
    from_environment = read_environment(cls)
    try:
        return cls(**{**from_file, **from_environment, **given})
    except ValidationError as error:
        sentences = [_sentence(cls, e, given, from_environment, from_file, config) for e in error.errors()]
        raise SettingError("\n".join(sentences)) from None


def read_environment(cls: type[Settings]) -> dict[str, str]:
    """What the variables `GRISTMILL_*` say of the fields of `cls`; an empty one says nothing."""
    found = {name: value for name in cls.model_fields if (value := os.environ.get(_variable(name)))}
    # Kubernetes sets GRISTMILL_PORT=tcp://... in every pod beside a service called gristmill.
    return {name: value for name, value in found.items() if not (name.endswith("port") and value.startswith("tcp://"))}


def read_file(cls: type[Settings], path: str, *, strict: bool = True) -> dict[str, Any]:
    """The part of the TOML file that `cls` reads: the shared top and its own table."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise SettingError(f"expected a TOML file at {path}; got {error.strerror}; correct --config") from None
    except ValueError as error:
        raise SettingError(f"expected TOML in {path}; got {error}; correct the file") from None
    shared = {name: value for name, value in content.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    _check_known(shared, list(Settings.model_fields), f"{path}, above the tables")
    _check_known(tables, list(TABLES), f"the tables of {path}")
    own = tables.get(cls.table, {})
    if strict:
        _check_known(own, list(cls.model_fields), f"[{cls.table}] of {path}")
    return {**shared, **{name: value for name, value in own.items() if name in cls.model_fields}}


def _check_known(names: Mapping[str, Any], known: list[str], where: str) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"remove it (known are {', '.join(known)})"
            raise SettingError(f"expected known settings in {where}; got {name!r}; {hint}")


def _sentence(
    cls: type[Settings],
    error: Any,
    given: Mapping[str, Any],
    from_environment: Mapping[str, str],
    from_file: Mapping[str, Any],
    config: str | None,
) -> str:
    """One validation error as: expected what, got what from where, do what."""
    name = str(error["loc"][0]) if error["loc"] else ""
    if name in given:
        value, source = given[name], option_name(name)
    elif name in from_environment:
        value, source = from_environment[name], _variable(name)
    else:
        value, source = from_file.get(name), f"{name} in {config}"
    if error["type"] == "value_error":
        return f"{source}: {error['ctx']['error']}"
    wanted = error["msg"].removeprefix("Input should be ")
    wanted = wanted.replace("a valid integer, unable to parse string as an integer", "a whole number")
    wanted = wanted.replace("a valid number, unable to parse string as a number", "a number")
    if error["type"].startswith(("greater", "less")):
        wanted = f"a number {wanted}"
    field = cls.model_fields.get(name)
    if field is None:
        return f"{source}: expected a setting of {cls.__name__}; got {name!r}; remove it"
    return f"{source}: expected {wanted}; got {value!r}; correct it, or leave it out (default {default_text(field)})"


def _variable(field: str) -> str:
    return ENVIRONMENT_PREFIX + field.upper()


def option_name(field: str) -> str:
    """The command-line option of a field."""
    return "--" + field.replace("_", "-")


def default_text(field: FieldInfo) -> str:
    """The field's default as one would write it."""
    default = field.get_default(call_default_factory=True)
    if isinstance(default, bool):
        return "on" if default else "off"
    return str(default) if default not in ("", {}, None) else "none"


def _option(name: str, field: FieldInfo) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The click option of one field. Values stay text: the model converts them, with one kind of error message."""
    help_text = f"{field.description} [default: {default_text(field)}; environment: {_variable(name)}]"
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, UnionType):  # int | None
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        choices = f"[{'|'.join(str(value) for value in get_args(annotation))}]"
        return click.option(option_name(name), name, type=str, default=None, metavar=choices, help=help_text)
    if annotation is bool:
        switch = f"{option_name(name)}/--no-{option_name(name)[2:]}"
        return click.option(switch, name, default=None, help=help_text)
    metavar = {int: "NUMBER", float: "SECONDS" if name.endswith("_seconds") else "NUMBER"}.get(annotation, "TEXT")
    return click.option(option_name(name), name, type=str, default=None, metavar=metavar, help=help_text)


def options(cls: type[Settings]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A click decorator: one option per field of `cls` and `--config`; the command gets one object as `settings`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*args: Any, config: str | None, **kwargs: Any) -> Any:
            given = {name: kwargs.pop(name) for name in cls.model_fields}
            try:
                settings = load(cls, given, config)
            except (SettingError, AddressError) as error:
                raise click.UsageError(str(error)) from None
            return function(*args, settings=settings, **kwargs)

        decorated: Callable[..., Any] = click.option(
            "--config",
            envvar=CONFIG_VARIABLE,
            metavar="FILE",
            default=None,
            help=f"TOML file with settings. [environment: {CONFIG_VARIABLE}]",
        )(command)
        for name, field in reversed(cls.model_fields.items()):
            decorated = _option(name, field)(decorated)
        return decorated

    return decorate
