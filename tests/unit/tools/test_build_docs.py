"""Links of pages in the repository become links of the site."""

from __future__ import annotations

import pytest

from tools.build_docs import OF_THE_REPOSITORY, REPOSITORY, relinked, site_pages, targets
from tools.reference_pages import pages

PLACES = targets(pages())


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a page](rest.md#errors)", "[a page](rest.md#errors)"),
        ("[an example](../../examples/asha)", "[an example](../examples/asha.md)"),
        ("[its file](../../examples/asha/experiment.yaml)", "[its file](../examples/asha.md)"),
        ("[changes](../../CHANGELOG.md)", "[changes](../project/changelog.md)"),
        ("[decisions](../decisions)", "[decisions](../decisions/README.md)"),
        ("![a picture](../images/experiment.png)", "![a picture](../images/experiment.png)"),
        ("[elsewhere](https://example.com/a.md)", "[elsewhere](https://example.com/a.md)"),
        ("[broken](nowhere.md)", "[broken](nowhere.md)"),
        ("[below](#errors)", "[below](#errors)"),
        ("[`engine.py`](../../katib/local/engine.py)", "`engine.py`"),
        ("[the engine](../../katib/local/engine.py)", "the engine (`katib/local/engine.py`)"),
        ("```\n[in code](y.md)\n```", "```\n[in code](y.md)\n```"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_becomes_text(
    link: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REPOSITORY, raising=False)

    assert relinked(link, "docs/reference/configuration.md", PLACES) == expected


def test_files_that_are_no_pages_are_linked_where_the_repository_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPOSITORY, "https://example.com/katib/blob/main/")

    text = relinked("[it](../proto/api.proto)", "docs/index.md", PLACES)

    assert text == "[it](https://example.com/katib/blob/main/proto/api.proto)"


def test_the_site_has_the_pages_of_the_repository_and_the_generated_ones() -> None:
    assert set(OF_THE_REPOSITORY.values()) | set(pages()) | {"index.md", "decisions/README.md"} <= set(site_pages())
