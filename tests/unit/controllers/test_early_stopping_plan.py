"""When the next question about running trials may be put."""

from __future__ import annotations

from katib.engine.controllers.early_stopping import plan
from katib.engine.controllers.early_stopping.plan import Asking


def answered(*, took: float = 0.001) -> Asking:
    asked = plan.before_question(Asking("u"), 100.0, readings=1)
    return plan.after_answer(asked, 100.0 + took)


def test_new_readings_are_asked_about_almost_at_once() -> None:
    asking = answered()

    assert plan.due_at(asking, readings=2) == 100.001 + plan.QUICK_SECONDS
    assert plan.due_at(asking, readings=1) == 100.001 + plan.LOOK_SECONDS


def test_questions_that_take_long_are_put_more_rarely() -> None:
    asking = answered(took=0.5)

    assert plan.due_at(asking, readings=2) == plan.due_at(asking, readings=1) == 100.5 + plan.SHARE * 0.5


def test_new_readings_do_not_shorten_the_pause_after_a_failure() -> None:
    asking = plan.after_failure(plan.before_question(Asking("u"), 100.0, readings=1), 100.0)

    assert plan.due_at(asking, readings=2) == asking.next_at > 100.0
