from __future__ import annotations

import pytest

from katib.api.failure_text import LAST_OUTPUT, failure_cause, last_line, with_last_output


@pytest.mark.parametrize(
    ("output", "line"),
    [
        pytest.param(b"", "", id="nothing"),
        pytest.param(b"one\ntwo\n", "two", id="the last of several"),
        pytest.param(b"one\ntwo", "two", id="without a line end"),
        pytest.param(b"boom\n\n  \n", "boom", id="blank lines after it"),
        pytest.param(b" 10%\r 50%\r100%\r", "100%", id="a progress bar"),
        pytest.param(b"\x1b[31mError:\x1b[0m boom\n", "Error: boom", id="colours"),
        pytest.param(b"lost \x00 word\n", "lost   word", id="control characters"),
        pytest.param(b"boom\n\x8f\x02\xff\xe9OK\x9c\x00\n", "", id="bytes"),
        pytest.param(b"\x8f\x02\xff\xe9\x9c\x00\x00\x01\nOK\n", "", id="letters among bytes"),
        pytest.param(b"\x8f\x02\xff\xe9\x9c\x00\nValueError: boom\n", "ValueError: boom", id="text after bytes"),
        pytest.param("内存不足\n".encode(), "内存不足", id="another script"),
        pytest.param(b"\xff boom\n", "\ufffd boom", id="not UTF-8"),
        pytest.param(b"x" * 1000, "x" * 300, id="too long"),
    ],
)
def test_the_last_line_of_an_output_is_the_last_with_text(output: bytes, line: str) -> None:
    assert last_line(output) == line


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        pytest.param(
            'container "main" of pod x-1 exited with 1; the back-off limit of 0 is reached; last output: KeyError: 3',
            "KeyError: 3 (exit code 1)",
            id="a job of this machine",
        ),
        pytest.param(
            "Container main in pod x-1 ended with exit code 2; last output: usage: train.py",
            "usage: train.py (exit code 2)",
            id="a pod of a cluster",
        ),
        pytest.param(
            'container "main" of pod x-1 exited with 1; the back-off limit of 0 is reached',
            "its program ended with exit code 1",
            id="nothing printed",
        ),
        pytest.param(
            'container "main" of pod x-1 was killed by SIGKILL; the back-off limit of 0 is reached; last output: x 7',
            "its program was killed by SIGKILL; last output: x 7",
            id="a signal",
        ),
        pytest.param(
            'container "main" of pod x-1: command "trian" not found on this machine; install it',
            'command "trian" not found on this machine; install it',
            id="no such command",
        ),
        pytest.param(
            'container "main" of pod x-1 exited with 1; last output: a; last output: b',
            "a; last output: b (exit code 1)",
            id="a program that prints our words",
        ),
        pytest.param("too many failures", "too many failures", id="words of a job of any kind"),
    ],
)
def test_what_explains_a_failure_comes_first(text: str, cause: str) -> None:
    assert failure_cause(text) == cause


def test_the_last_line_is_announced_in_the_words_of_a_pods_collector() -> None:
    assert with_last_output("ended", "boom") == f"ended; {LAST_OUTPUT}boom"
