"""The cookie of a browser that was let in: whose it is, and how long it is good."""

from __future__ import annotations

import pytest

from katib.rest.sessions import LIFETIME_SECONDS, MOST_VALUES, Sessions, cookie_values, set_cookie

NOW = 1_900_000_000.5
OURS = Sessions(b"secret", "today")


def test_a_cookie_is_good_until_it_ends_and_also_after_a_restart() -> None:
    value = OURS.new_value(NOW)
    after_a_restart = Sessions(b"secret", "another start")

    assert OURS.is_valid([value], NOW)
    assert after_a_restart.is_valid([value], NOW + LIFETIME_SECONDS - 2)
    assert not OURS.is_valid([value], NOW + LIFETIME_SECONDS)


def test_a_cookie_ends_with_the_token() -> None:
    assert not Sessions(b"new token").is_valid([OURS.new_value(NOW)], NOW)


def test_a_cookie_and_the_host_name_do_not_show_the_token() -> None:
    assert "secret" not in OURS.new_value(NOW) + OURS.host_name()


def _moved(value: str) -> str:
    end, _, mac = value.partition(".")
    return f"{int(end) + 1}.{mac}"


GOOD = OURS.new_value(NOW)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("", id="empty"),
        pytest.param("secret", id="the-token-itself"),
        pytest.param("today", id="the-ticket"),
        pytest.param(GOOD.partition(".")[2], id="no-end"),
        pytest.param(f"{GOOD.partition('.')[0]}.", id="no-signature"),
        pytest.param(GOOD[:-1], id="cut"),
        pytest.param(GOOD.upper(), id="other-case"),
        pytest.param(f" {GOOD}", id="space"),
        pytest.param(_moved(GOOD), id="prolonged"),
        pytest.param(Sessions(b"").new_value(NOW), id="signed-with-nothing"),
        pytest.param(OURS.new_value(NOW + 10 * LIFETIME_SECONDS), id="from-the-future"),
    ],
)
def test_what_is_not_a_cookie_of_ours_is_refused(value: str) -> None:
    assert not OURS.is_valid([value], NOW)


def test_a_cookie_beside_those_that_another_port_set_is_found_and_a_flood_is_not_read() -> None:
    """Servers on other ports of a host may set cookies for it, of our name too."""
    assert OURS.is_valid(["planted", GOOD], NOW)
    assert not OURS.is_valid([*(["planted"] * MOST_VALUES), GOOD], NOW)


def test_only_the_ticket_of_this_start_opens() -> None:
    assert OURS.is_ticket("today")
    assert [OURS.is_ticket(ticket) for ticket in ("", "yesterday", "tödäy", "secret")] == [False] * 4
    assert not Sessions(b"secret").is_ticket("")


def test_the_host_name_is_the_same_at_each_start_and_different_for_each_token() -> None:
    assert OURS.host_name() == Sessions(b"secret").host_name() != Sessions(b"other").host_name()
    assert OURS.host_name().endswith(".localhost")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", []),
        ("katib-80=a", ["a"]),
        ("x=1; katib-80=a=b;katib-80=c ; katib-8080=d; KATIB-80=e", ["a=b", "c"]),
        ("katib-80", [""]),
        (";;=;", []),
    ],
)
def test_cookies_are_found_by_their_name(header: str, expected: list[str]) -> None:
    assert cookie_values(header, "katib-80") == expected


def test_scripts_and_other_sites_never_get_the_cookie() -> None:
    plain = set_cookie("katib-80", "v", seconds=5, secure=False)

    assert plain == "katib-80=v; Path=/; Max-Age=5; HttpOnly; SameSite=Strict"
    assert set_cookie("katib-80", "v", seconds=5, secure=True) == f"{plain}; Secure"
