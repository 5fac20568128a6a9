"""The cookie of a browser that was let in: whose it is, and how long it is good."""

from __future__ import annotations

from pathlib import Path

import pytest

from katib.doors.rest.sessions import (
    LIFETIME_SECONDS,
    LINK_SECONDS,
    MOST_VALUES,
    Sessions,
    cookie_values,
    new_ticket,
    set_cookie,
)
from katib.doors.rest.signed_out import SignedOut

NOW = 1_900_000_000.5
OURS = Sessions(b"secret", "today")
TICKET = new_ticket("today", NOW)


def test_a_cookie_is_good_until_it_ends_with_its_time_or_its_token() -> None:
    value = OURS.new_value(NOW)
    after_a_restart = Sessions(b"secret", "another start")

    assert OURS.is_valid([value], NOW)
    assert after_a_restart.is_valid([value], NOW + LIFETIME_SECONDS - 2)
    assert not OURS.is_valid([value], NOW + LIFETIME_SECONDS)

    assert not Sessions(b"new token", "today").is_valid([OURS.new_value(NOW)], NOW)
    assert not Sessions(b"secret").is_valid([OURS.new_value(NOW)], NOW)  # a server for programs only

    assert "secret" not in OURS.new_value(NOW) + OURS.host_name()

    assert OURS.host_name() == Sessions(b"secret").host_name() != Sessions(b"other").host_name()
    assert OURS.host_name().endswith(".localhost")


def _moved(value: str) -> str:
    end, _, mac = value.partition(".")
    return f"{int(end) + 1}.{mac}"


GOOD = OURS.new_value(NOW)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("", id="empty"),
        pytest.param("secret", id="the-token-itself"),
        pytest.param("today", id="the-key-of-links"),
        pytest.param(TICKET, id="a-ticket"),
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


def test_signing_in_again_gives_a_good_cookie_beside_those_of_others() -> None:
    ours = Sessions(b"secret", "today")
    ours.sign_out([ours.new_value(NOW)], NOW)

    assert ours.is_valid([ours.new_value(NOW)], NOW)

    # servers on other ports of a host may set cookies for it, of our name too
    assert OURS.is_valid(["planted", GOOD], NOW)
    assert not OURS.is_valid([*(["planted"] * MOST_VALUES), GOOD], NOW)


def test_only_a_ticket_of_this_start_opens_and_once() -> None:
    made, once, mac = TICKET.split(".")
    wrong = (
        "",
        "today",
        "tödäy",
        "secret",
        mac,
        f"{int(made) + 1}.{once}.{mac}",
        f"{made}.{mac}",
        new_ticket("yesterday", NOW),
        GOOD,
    )

    assert {ticket: OURS.use_ticket(ticket, NOW) for ticket in wrong} == dict.fromkeys(wrong, False)
    assert [OURS.use_ticket(TICKET, NOW + after) for after in (0, 1, LINK_SECONDS)] == [True, False, False]
    assert [Sessions(b"secret").use_ticket(ticket, NOW) for ticket in ("", new_ticket("", NOW))] == [False] * 2

    late, too_late = new_ticket("today", NOW), new_ticket("today", NOW)

    assert OURS.use_ticket(late, NOW + LINK_SECONDS - 1)
    assert not OURS.use_ticket(too_late, NOW + LINK_SECONDS)


def test_signing_out_ends_every_copy_of_the_cookie_also_after_a_restart(tmp_path: Path) -> None:
    kept = tmp_path / "signed-out"
    ours = Sessions(b"secret", "today", SignedOut(kept))
    one, other = ours.new_value(NOW - 60), ours.new_value(NOW)
    ours.sign_out(["planted", one], NOW)
    after_a_restart = Sessions(b"secret", "tomorrow", SignedOut(kept))

    assert [sessions.is_valid([one], NOW) for sessions in (ours, after_a_restart)] == [False, False]
    assert [sessions.is_valid([other], NOW) for sessions in (ours, after_a_restart)] == [True, True]
    assert one.partition(".")[2] not in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_signing_out_ends_the_links_that_were_made_before_it_if_it_is_of_a_session() -> None:
    ours = Sessions(b"secret", "today")
    ours.sign_out([ours.new_value(NOW)], NOW + 1)

    assert not ours.use_ticket(TICKET, NOW + 2)
    assert ours.use_ticket(new_ticket("today", NOW + 1.5), NOW + 2)

    ours = Sessions(b"secret", "today")
    ours.sign_out(["", "planted", ours.new_value(NOW - LIFETIME_SECONDS)], NOW)

    assert ours.use_ticket(TICKET, NOW)


def test_who_signed_out_is_forgotten_when_the_cookie_would_have_ended(tmp_path: Path) -> None:
    kept = tmp_path / "signed-out"
    ours = Sessions(b"secret", "today", SignedOut(kept))
    later = NOW + LIFETIME_SECONDS
    ours.sign_out([ours.new_value(NOW)], NOW)
    ours.sign_out([ours.new_value(later)], later)

    assert len(kept.read_text().splitlines()) == 1


@pytest.mark.parametrize("content", ["", "no time\n", "1 2 3\n", "\x00"])
def test_a_file_that_cannot_be_read_lets_the_server_start(tmp_path: Path, content: str) -> None:
    kept = tmp_path / "signed-out"
    kept.write_text(content)

    assert Sessions(b"secret", "today", SignedOut(kept)).is_valid([GOOD], NOW)


def test_where_who_signed_out_cannot_be_kept_the_session_ends_all_the_same(tmp_path: Path) -> None:
    ours = Sessions(b"secret", "today", SignedOut(tmp_path / "missing" / "signed-out"))
    ours.sign_out([GOOD], NOW)

    assert not ours.is_valid([GOOD], NOW)


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
