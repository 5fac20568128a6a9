"""Notes as Markdown: what is shown, and what is not."""

from __future__ import annotations

import pytest

from katib.doors.ui.markdown import markdown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("**flat** `lr=1e-3`", "<p><strong>flat</strong> <code>lr=1e-3</code></p>", id="words"),
        pytest.param("one\ntwo", "<p>one<br />\ntwo</p>", id="a-break-is-kept"),
        pytest.param("# Plan", "<h3>Plan</h3>", id="below-the-headings-of-the-page"),
        pytest.param("###### Plan", "<h6>Plan</h6>", id="the-lowest-heading"),
        pytest.param("<b onclick=x>b</b>", "<p>&lt;b onclick=x&gt;b&lt;/b&gt;</p>", id="html-is-text"),
        pytest.param("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>", id="a-script-is-no-link"),
        pytest.param("[x](JAVASCRIPT:a)", "<p>[x](JAVASCRIPT:a)</p>", id="in-any-case"),
        pytest.param("[x](data:text/html,a)", "<p>[x](data:text/html,a)</p>", id="data-is-no-link"),
        pytest.param("[x](../rest)", "<p>[x](../rest)</p>", id="nothing-of-this-server"),
    ],
)
def test_notes_are_shown(text: str, shown: str) -> None:
    assert markdown(text).strip() == shown


def test_a_link_opens_beside_the_page_and_an_image_is_only_a_link() -> None:
    link = '<a href="https://a.org/x.png" rel="noopener noreferrer nofollow" target="_blank">x</a>'

    assert markdown("[x](https://a.org/x.png)").strip() == f"<p>{link}</p>"
    assert markdown("![x](https://a.org/x.png)").strip() == f"<p>!{link}</p>"


def test_a_table_has_cells() -> None:
    assert "<td>0.1</td>" in markdown("| seed | loss |\n|---|---|\n| 1 | 0.1 |")
