"""Fixtures and settings of the whole suite: what is started once for all tests that want it."""

from hypothesis import settings

from tests.support.api_server import api_server

__all__ = ["api_server"]

settings.register_profile("suite", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("suite")
