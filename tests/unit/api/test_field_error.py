from __future__ import annotations

from katib.errors import FieldError, InvalidError


def test_whatever_it_quotes_an_error_is_one_printable_line() -> None:
    error = FieldError("spec.x", 'found "a\nb\x1b[31m\u2028ü🎯"', "fix it", "some-rule")

    assert str(error) == 'spec.x: found "a\\nb\\x1b[31m\\u2028ü🎯"; fix it'


def test_several_errors_are_several_lines() -> None:
    errors = [FieldError("a", "x", "y", "z"), FieldError("b", "x", "y", "z")]

    assert str(InvalidError(errors)) == "a: x; y\nb: x; y"
