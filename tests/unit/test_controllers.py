"""The scheduler's controllers: who answers for which request, and which duties recur."""

from __future__ import annotations

from collections import Counter

import pytest

from gristmill.protocol.kinds import Request
from gristmill.scheduler.controller import Controller
from gristmill.scheduler.loop import controllers
from gristmill.settings import SchedulerSettings


@pytest.fixture
def all_controllers() -> list[Controller]:
    return controllers(SchedulerSettings())


def test_every_request_belongs_to_exactly_one_controller(all_controllers: list[Controller]) -> None:
    owners = Counter(request for controller in all_controllers for request in controller.requests)

    assert owners == Counter(Request)


def test_every_controller_and_every_duty_has_a_name_of_its_own(all_controllers: list[Controller]) -> None:
    duties = [duty.name for controller in all_controllers for duty in controller.duties]
    names = [controller.name for controller in all_controllers]

    assert len(set(duties)) == len(duties)
    assert len(set(names)) == len(names)


def test_whether_the_intake_is_open_is_decided_before_anything_is_reported(all_controllers: list[Controller]) -> None:
    duties = [duty.name for controller in all_controllers for duty in controller.duties]

    assert duties.index("intake") < duties.index("report")
