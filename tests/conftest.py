"""Fixtures of the whole suite: what is started once for all tests that want it."""

from tests.support.api_server import api_server

__all__ = ["api_server"]
