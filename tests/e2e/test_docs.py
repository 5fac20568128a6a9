"""The pages of the documentation that run experiments, followed from their first block to their last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_blocks import PAGES, ROOT, blocks_of, run_page

SLOW = [page for page in PAGES if any(block.is_slow for block in blocks_of(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in SLOW])
def test_the_blocks_of_a_page_run_as_they_are(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path, slow=True) == []
