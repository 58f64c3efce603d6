"""One module a page: what it shows. Their order here is that of the navigation."""

from __future__ import annotations

from gristmill_web.frame import Page
from gristmill_web.pages import audit, clients, machines, overview, processors

PAGES: tuple[Page, ...] = (overview.PAGE, processors.PAGE, machines.PAGE, clients.PAGE, audit.PAGE)
