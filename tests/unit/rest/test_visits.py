"""What is a page, and who goes to one."""

from __future__ import annotations

import pytest

from katib.rest.visits import Headers, is_page, is_visit

PAGES = ["/", "/katib", "/katib/", "/katib/experiments/default/demo", "/katib/new", "/docs", "/katib/docs"]
OTHERS = [
    "/api/v1/experiments",
    "/openapi.json",
    "/metrics",
    "/katib/api/v1/experiments",
    "/katib/data/experiments/default/demo/live",
    "/katib/static/1/style.css",
    "/katib/openapi.json",
    "/katib/fetch_trial_logs/",
    "/katib/fetch_namespaces",
    "/katib/create_experiment/",
    "/katib/delete_experiment",
    "/katib/add_template/",
]
VISIT = {
    "host": "127.0.0.1",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
    "sec-fetch-site": "cross-site",
}


def headers(values: dict[str, str]) -> Headers:
    return Headers((name.encode(), value.encode()) for name, value in values.items())


@pytest.mark.parametrize("path", PAGES)
def test_a_page_may_be_reached_from_a_link_anywhere(path: str) -> None:
    assert is_page(path)
    assert is_visit("GET", path, headers(VISIT))


@pytest.mark.parametrize("path", OTHERS)
def test_data_is_never_a_page(path: str) -> None:
    assert not is_page(path)
    assert not is_visit("GET", path, headers(VISIT))


@pytest.mark.parametrize(
    ("method", "change"),
    [
        pytest.param("POST", {}, id="form"),
        pytest.param("HEAD", {}, id="head"),
        pytest.param("GET", {"sec-fetch-dest": "iframe"}, id="frame"),
        pytest.param("GET", {"sec-fetch-dest": "object"}, id="object"),
        pytest.param("GET", {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}, id="script"),
        pytest.param("GET", {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, id="fetch"),
        pytest.param("GET", {"origin": "https://evil.example"}, id="foreign-origin"),
        pytest.param("GET", {"origin": "null"}, id="sandboxed"),
    ],
)
def test_only_a_window_of_its_own_that_goes_to_a_page_is_a_visit(method: str, change: dict[str, str]) -> None:
    assert not is_visit(method, "/katib/", headers({**VISIT, **change}))
