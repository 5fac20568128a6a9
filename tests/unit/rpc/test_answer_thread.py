"""The thread that is kept for the next call."""

from __future__ import annotations

import threading

from katib.wire.rpc.connection import AnswerThread
from tests.support.waiting import eventually


def test_calls_one_after_the_other_run_on_the_same_thread() -> None:
    thread = AnswerThread("answers")
    ran_on: list[threading.Thread] = []

    for count in (1, 2, 3):
        assert eventually(lambda: thread.take(lambda: ran_on.append(threading.current_thread())))
        eventually(lambda count=count: len(ran_on) == count)

    assert len({id(found) for found in ran_on}) == 1
    assert ran_on[0] is not threading.current_thread()


def test_a_second_call_is_refused_while_the_first_is_under_way() -> None:
    thread, released, ran = AnswerThread("answers"), threading.Event(), threading.Event()

    first = thread.take(lambda: released.wait(60) and None)
    second = thread.take(ran.set)
    released.set()

    assert (first, second) == (True, False)
    assert eventually(lambda: thread.take(ran.set))
    assert ran.wait(60)


def test_a_thread_that_nobody_needs_ends_and_is_started_again_by_the_next_call() -> None:
    thread = AnswerThread("answers-for-a-moment", kept_seconds=0.001)
    answered: list[int] = []

    for number in range(20):
        assert eventually(lambda number=number: thread.take(lambda: answered.append(number)))
        eventually(lambda number=number: number in answered)
        eventually(lambda: all(found.name != "answers-for-a-moment" for found in threading.enumerate()))

    assert answered == list(range(20))


def test_a_closed_thread_has_ended_and_takes_no_call() -> None:
    thread, released = AnswerThread("answers-closed"), threading.Event()
    assert thread.take(lambda: released.wait(60) and None)
    closing = threading.Thread(target=thread.close)
    closing.start()
    released.set()
    closing.join(60)

    assert all(found.name != "answers-closed" for found in threading.enumerate())
    assert not thread.take(released.set)
    thread.close()
