"""One module a page: what it shows. Their order here is that of the navigation."""

from __future__ import annotations

from gristmill_web.frame import Page
from gristmill_web.pages import (
    audit,
    clients,
    events,
    graphs,
    machines,
    objects,
    overview,
    processors,
    redis,
    schedulers,
    task,
    tasks,
    timeline,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    tasks.PAGE,
    task.PAGE,
    timeline.PAGE,
    graphs.PAGE,
    graphs.ONE,
    processors.PAGE,
    machines.PAGE,
    clients.PAGE,
    objects.PAGE,
    events.PAGE,
    schedulers.PAGE,
    redis.PAGE,
    audit.PAGE,
)
