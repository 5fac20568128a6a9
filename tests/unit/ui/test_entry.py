"""How a browser gets in and out, and what everybody else is told."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import httpx
import pytest

from katib.doors.rest.guard import MAX_BODY_BYTES
from katib.doors.rest.server import Server
from katib.doors.rest.sessions import LIFETIME_SECONDS, Sessions, new_ticket
from katib.doors.ui import ui_routes
from katib.doors.ui.entry import page_within
from tests.support.tuning import MemoryTuningService, document

TOKEN = "correct horse"
PERSON = {"accept": "text/html,*/*;q=0.8", "user-agent": "Mozilla/5.0", "sec-fetch-mode": "navigate"}
TYPED = {**PERSON, "sec-fetch-dest": "document", "sec-fetch-site": "none"}
LINKED = {**TYPED, "sec-fetch-site": "cross-site"}
SCRIPT = {"accept": "application/json", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
PAGE = "/katib/experiments/default/demo"


@pytest.fixture(scope="module")
def service() -> MemoryTuningService:
    service = MemoryTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    return service


@pytest.fixture(scope="module")
def server(service: MemoryTuningService) -> Iterator[Server]:
    with Server(service, host="127.0.0.1", port=0, token=TOKEN, ui=ui_routes) as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    """A browser that nobody has let in."""
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client


@pytest.fixture
def cookie(server: Server) -> dict[str, str]:
    """What a browser sends that was let in."""
    return {"cookie": f"katib-{server.port}={Sessions(TOKEN.encode()).new_value(time.time())}"}


@pytest.fixture(scope="module")
def public(service: MemoryTuningService) -> Iterator[httpx.Client]:
    """A server behind a proxy that encrypts."""
    with (
        Server(service, host="0.0.0.0", port=0, token=TOKEN, ui=ui_routes) as running,
        httpx.Client(base_url=f"http://127.0.0.1:{running.port}", trust_env=False) as client,
    ):
        yield client


def ticket_of(server: Server) -> str:
    """Return a new ticket: each opens once."""
    return new_ticket(server.link_key, time.time())


# --- in by the link ---------------------------------------------------------------------------------------------------


def test_the_link_leads_to_the_page_without_the_token_and_sets_a_cookie(server: Server, http: httpx.Client) -> None:
    answer = http.get(f"/katib/open?ticket={ticket_of(server)}", headers=TYPED)
    cookie = answer.headers["set-cookie"]

    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    assert re.fullmatch(
        rf"katib-{server.port}=\d+\.[0-9a-f]{{64}}; Path=/; Max-Age={LIFETIME_SECONDS}; HttpOnly; SameSite=Strict",
        cookie,
    )
    assert TOKEN not in server.page + cookie
    assert http.get("/katib/", headers={**TYPED, "cookie": cookie.partition(";")[0]}).status_code == 200


def test_a_link_from_elsewhere_gets_the_cookie_and_then_goes_on_by_itself(server: Server, http: httpx.Client) -> None:
    """A browser keeps a strict cookie back on the way that began elsewhere, such as in the file of `katib ui`."""
    answer = http.get(f"/katib/open?ticket={ticket_of(server)}", headers=LINKED)

    assert answer.status_code == 200
    assert answer.headers["set-cookie"].startswith(f"katib-{server.port}=")
    assert '<meta http-equiv="refresh" content="0; url=./">' in answer.text


def test_a_link_opens_once_and_later_only_for_the_browser_that_it_let_in(server: Server, http: httpx.Client) -> None:
    link = server.page.partition("localhost")[2].partition("/")[2]
    cookie = http.get(link, headers=TYPED).headers["set-cookie"].partition(";")[0]
    http.cookies.clear()
    other, same = (http.get(link, headers={**TYPED, **more}) for more in ({}, {"cookie": cookie}))

    assert (other.status_code, "set-cookie" in other.headers) == (401, False)
    assert (same.status_code, same.headers["location"]) == (303, "./")


@pytest.mark.parametrize("query", ["?ticket=wrong", "", f"?ticket={TOKEN}", f"?token={TOKEN}", "?ticket=%ff"])
def test_a_wrong_link_sets_no_cookie_and_says_what_to_do(http: httpx.Client, query: str) -> None:
    answer = http.get(f"/katib/open{query}", headers=TYPED)

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "not valid any more" in answer.text
    assert "katib ui" in answer.text
    assert TOKEN not in answer.text


def test_each_start_has_a_link_of_its_own(server: Server, service: MemoryTuningService) -> None:
    with Server(service, host="127.0.0.1", port=0, token=TOKEN, ui=ui_routes) as again:
        assert again.link_key != server.link_key
        assert again.page.partition(":")[2].partition(":")[0] == server.page.partition(":")[2].partition(":")[0]


def test_the_link_has_a_host_name_of_its_own_that_nobody_can_take(server: Server) -> None:
    name = Sessions(TOKEN.encode()).host_name()
    answers = [
        httpx.get(f"{base}:{server.port}/healthz", headers={"host": host}, trust_env=False).status_code
        for base in ("http://127.0.0.1", "http://[::1]")
        for host in (f"{name}:{server.port}", f"katib-0123456789abcdef.localhost:{server.port}")
    ]

    assert server.page.startswith(f"http://{name}:{server.port}/katib/open?ticket=")
    assert answers == [200, 403, 200, 403]


def test_where_another_program_listens_beside_us_the_link_has_no_name_for_it(service: MemoryTuningService) -> None:
    """Browsers would ask it first."""
    import socket

    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with Server(service, host="127.0.0.1", port=port, token=TOKEN, ui=ui_routes) as beside:
            assert beside.page.startswith(f"http://127.0.0.1:{port}/katib/open?ticket=")


# --- in by the token --------------------------------------------------------------------------------------------------


def sign_in(http: httpx.Client, token: str, page: str = "", **headers: str) -> httpx.Response:
    own = {"origin": str(http.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    return http.post("/katib/sign-in", data={"token": token, "page": page}, headers={**PERSON, **own, **headers})


def test_the_token_typed_into_the_form_leads_to_the_page_that_was_asked_for(http: httpx.Client) -> None:
    asked = http.get(f"{PAGE}?tab=trials", headers=TYPED)
    page = re.search(r'name="page" value="([^"]*)"', asked.text)
    assert page is not None
    answer = sign_in(http, f" {TOKEN}\n", page[1])

    assert asked.status_code == 401
    assert (answer.status_code, answer.headers["location"]) == (303, "./experiments/default/demo?tab=trials")
    assert "HttpOnly" in answer.headers["set-cookie"]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN.upper(), "\x00"])
def test_a_wrong_token_says_so(http: httpx.Client, token: str) -> None:
    answer = sign_in(http, token, "new")

    assert answer.status_code == 401
    assert "not the token" in answer.text
    assert 'value="new"' in answer.text
    assert "set-cookie" not in answer.headers


def test_another_site_can_sign_nobody_in_or_out(http: httpx.Client) -> None:
    answers = [
        sign_in(http, TOKEN, origin="https://evil.example"),
        sign_in(http, TOKEN, origin="null"),
        http.post("/katib/sign-out", headers={**LINKED, "origin": "https://evil.example"}),
        http.post("/katib/sign-out", headers={"sec-fetch-site": "same-site"}),
    ]

    assert [answer.status_code for answer in answers] == [403] * 4
    assert all("set-cookie" not in answer.headers for answer in answers)


def test_a_form_that_never_ends_is_refused(http: httpx.Client) -> None:
    assert sign_in(http, "x" * (MAX_BODY_BYTES + 1)).status_code == 413


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("", ""),
        ("new", "new"),
        ("experiments/default/demo?tab=trials&where=lr:0..1", "experiments/default/demo?tab=trials&where=lr:0..1"),
        ("?namespace=team", "?namespace=team"),
        ("//evil.example", ""),
        ("/katib/", ""),
        ("https://evil.example", ""),
        ("javascript:alert(1)", ""),
        ("..//evil.example", ""),
        ("a/../../x", ""),
        ("\\\\evil.example", ""),
        ("a\nb", ""),
        ('"><script>', ""),
    ],
)
def test_signing_in_leads_to_pages_of_ours_only(page: str, expected: str) -> None:
    assert page_within(page) == expected


# --- inside -----------------------------------------------------------------------------------------------------------


def test_the_cookie_opens_pages_data_and_the_api(http: httpx.Client, cookie: dict[str, str]) -> None:
    paths = (PAGE, "/katib/api/v1/experiments", "/api/v1/experiments", "/docs", "/katib/fetch_namespaces/")

    assert {path: http.get(path, headers={**cookie, **TYPED}).status_code for path in paths} == dict.fromkeys(
        paths, 200
    )


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"origin": "https://evil.example"}, id="origin"),
        pytest.param({"origin": "http://127.0.0.1:1"}, id="another-port"),
        pytest.param({"origin": "null"}, id="sandbox"),
        pytest.param({"sec-fetch-site": "cross-site"}, id="cross-site"),
        pytest.param({"sec-fetch-site": "same-site"}, id="same-site"),
        pytest.param({**LINKED, "sec-fetch-dest": "iframe"}, id="frame"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/katib/"), ("GET", "/api/v1/experiments"), ("DELETE", "/api/v1/namespaces/default/experiments/demo")],
)
def test_the_cookie_helps_no_other_site(
    http: httpx.Client, cookie: dict[str, str], headers: dict[str, str], method: str, path: str
) -> None:
    answer = http.request(method, path, headers={**cookie, **headers})

    assert (answer.status_code, answer.json()["reason"]) == (403, "CrossSite")


@pytest.mark.parametrize("path", ["/katib/api/v1/experiments", "/katib/fetch_experiments/", "/api/v1/experiments"])
def test_a_link_of_another_site_opens_no_data(http: httpx.Client, cookie: dict[str, str], path: str) -> None:
    assert http.get(path, headers={**cookie, **LINKED}).status_code == 403


@pytest.mark.parametrize("change", ["other-port", "other-token", "ended"])
def test_a_wrong_cookie_is_none(server: Server, http: httpx.Client, change: str) -> None:
    port = server.port + 1 if change == "other-port" else server.port
    sessions = Sessions(b"other" if change == "other-token" else TOKEN.encode())
    value = sessions.new_value(time.time() - (LIFETIME_SECONDS + 1 if change == "ended" else 0))
    headers = {"cookie": f"katib-{port}={value}"}

    assert http.get("/api/v1/experiments", headers=headers).status_code == 401
    assert http.get("/katib/", headers={**TYPED, **headers}).status_code == 401


def test_a_cookie_outlives_the_server(service: MemoryTuningService, cookie: dict[str, str]) -> None:
    name, _, value = cookie["cookie"].partition("=")
    with Server(service, host="127.0.0.1", port=0, token=TOKEN, ui=ui_routes) as again:
        headers = {"host": f"127.0.0.1:{name.removeprefix('katib-')}", "cookie": f"{name}={value}"}

        assert httpx.get(f"{again.url}/katib/", headers=headers, trust_env=False).status_code == 200


@pytest.fixture
def own(service: MemoryTuningService) -> Iterator[Server]:
    """A server of one test: signing out ends the links of all."""
    with Server(service, host="127.0.0.1", port=0, token=TOKEN, ui=ui_routes) as running:
        yield running


def test_signing_out_ends_the_session_and_the_links_on_the_server(own: Server) -> None:
    link = f"/katib/open?ticket={ticket_of(own)}"
    with httpx.Client(base_url=own.url, trust_env=False) as browser:
        copied = {"cookie": browser.get(link, headers=TYPED).headers["set-cookie"].partition(";")[0]}
        same_site = {"origin": own.url, "sec-fetch-site": "same-origin"}
        before = browser.get("/katib/", headers={**copied, **TYPED}).status_code
        browser.post("/katib/sign-out", headers={**copied, **same_site})
        browser.cookies.clear()
        after = [browser.get(path, headers={**copied, **TYPED}) for path in ("/katib/", "/api/v1/experiments", link)]

    assert before == 200
    assert [answer.status_code for answer in after] == [401, 401, 401]
    assert "katib ui" in after[2].text
    assert all("set-cookie" not in answer.headers for answer in after)


def test_signing_out_makes_the_browser_forget_the_cookie(own: Server) -> None:
    cookie = {"cookie": f"katib-{own.port}={Sessions(TOKEN.encode()).new_value(time.time())}"}
    with httpx.Client(base_url=own.url, trust_env=False) as http:
        inside = http.get("/katib/", headers={**cookie, **TYPED})
        answer = http.post("/katib/sign-out", headers={**cookie, "origin": own.url, "sec-fetch-site": "same-origin"})

    assert 'action="sign-out"' in inside.text
    assert (answer.status_code, answer.headers["location"]) == (303, "sign-in")
    assert answer.headers["set-cookie"] == f"katib-{own.port}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


def test_who_came_with_the_token_is_not_offered_to_sign_out(http: httpx.Client) -> None:
    assert "sign-out" not in http.get("/katib/", headers={**TYPED, "authorization": f"Bearer {TOKEN}"}).text


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, False),
        ({"x-forwarded-proto": "http"}, False),
        ({"x-forwarded-proto": "https"}, True),
        ({"origin": "https://tuner.example", "host": "tuner.example"}, True),
    ],
)
def test_over_https_the_cookie_stays_there(public: httpx.Client, headers: dict[str, str], expected: bool) -> None:
    answer = public.post("/katib/sign-in", data={"token": TOKEN}, headers=headers)

    assert answer.status_code == 303
    assert answer.headers["set-cookie"].endswith("; Secure") is expected


# --- outside ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/katib/", PAGE, "/katib/new", "/docs", "/katib/nowhere"])
def test_a_person_without_token_is_told_how_to_get_in_and_sees_nothing(http: httpx.Client, path: str) -> None:
    answer = http.get(path, headers=TYPED)

    assert answer.status_code == 401
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["www-authenticate"] == 'Bearer realm="katib"'  # at Basic a window would open
    assert "katib ui" in answer.text
    assert 'type="password"' in answer.text
    assert "loss" not in answer.text


@pytest.mark.parametrize("path", ["/katib/", "/", "/docs", PAGE, "/katib/a/b/c"])
def test_the_way_from_any_page_to_the_form_is_right(http: httpx.Client, path: str) -> None:
    """Under whatever path a gateway shows us, so without a slash at its beginning."""
    base = re.search(r'<base href="([^"]*)">', http.get(path, headers=TYPED).text)
    assert base is not None
    assert not base[1].startswith("/")

    there = httpx.URL(f"https://gateway.example/some/prefix{path}").join(base[1]).join("sign-in")

    assert there.path == "/some/prefix/katib/sign-in"


def test_a_link_of_another_site_is_asked_again_by_a_page_of_ours(http: httpx.Client, cookie: dict[str, str]) -> None:
    first = http.get(f"{PAGE}?tab=trials", headers=LINKED)
    own = {**TYPED, "sec-fetch-site": "same-origin"}

    assert '<meta http-equiv="refresh" content="0; url=experiments/default/demo?tab=trials">' in first.text
    assert "loss" not in first.text
    assert http.get(PAGE, headers={**own, **cookie}).status_code == 200
    assert http.get(PAGE, headers=own).status_code == 401  # and no third time
    assert "refresh" not in http.get(PAGE, headers=own).text


@pytest.mark.parametrize("headers", [SCRIPT, {**SCRIPT, "accept": "text/event-stream"}])
def test_a_script_without_cookie_gets_a_problem_and_no_window_for_a_password(
    http: httpx.Client, headers: dict[str, str]
) -> None:
    answer = http.get("/katib/data/experiments/default/demo/live", headers=headers)

    assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")
    assert "Basic" not in answer.headers["www-authenticate"]


def test_a_program_is_asked_for_the_token_in_either_scheme(http: httpx.Client) -> None:
    answer = http.get("/katib/", headers={"accept": "*/*"})

    assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")
    assert "Basic" in answer.headers["www-authenticate"]


def test_without_a_token_only_what_every_page_looks_like_is_shown(http: httpx.Client) -> None:
    styles = re.search(r'href="(static/[^"]*style\.css)"', http.get("/katib/", headers=TYPED).text)
    assert styles is not None

    assert http.get(f"/katib/{styles[1]}").status_code == 200
    assert http.get("/katib/data/experiments/default/demo/figures/history").status_code == 401
    assert http.get("/katib/static/../api/v1/experiments").status_code == 401
    assert http.get("/katib/static/%2e%2e/api/v1/experiments").status_code in (401, 404)


# --- every page -------------------------------------------------------------------------------------------------------

SHOWN = ["/katib/", PAGE, "/katib/experiments/default/ghost", "/katib/nowhere", "/katib/sign-in", "/docs"]


@pytest.mark.parametrize("path", SHOWN)
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_no_page_runs_foreign_scripts_or_is_framed_by_another_site(
    http: httpx.Client, cookie: dict[str, str], path: str, inside: bool
) -> None:
    answer = http.get(path, headers={**TYPED, **(cookie if inside else {})})
    policy = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))

    assert policy["default-src"] == "'none'"
    assert policy.get("script-src", "'none'") in ("'self'", "'none'")
    assert policy["frame-ancestors"] in ("'self'", "'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*\ssrc=)", answer.text)
    assert not re.search(r"\son\w+=", answer.text)


def test_a_page_that_is_not_there_says_so_to_a_person(http: httpx.Client, cookie: dict[str, str]) -> None:
    answer = http.get("/katib/experiments/default/ghost", headers={**TYPED, **cookie})

    assert answer.status_code == 404
    assert "ghost" in answer.text
    assert "All experiments" in answer.text


def test_a_server_that_asks_for_no_token_has_no_door(service: MemoryTuningService) -> None:
    with Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server:
        answers = [
            httpx.get(f"{server.url}/katib/{path}", headers=TYPED, trust_env=False) for path in ("open", "sign-in", "")
        ]
        linked = httpx.get(f"{server.url}/katib/", headers=LINKED, trust_env=False)
        framed = httpx.get(f"{server.url}/katib/", headers={**LINKED, "sec-fetch-dest": "iframe"}, trust_env=False)

        assert server.page == f"{server.url}/katib/"
        assert [answer.status_code for answer in answers] == [303, 303, 200]
        assert "sign-out" not in answers[2].text
        assert (linked.status_code, framed.status_code) == (200, 403)
