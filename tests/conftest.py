"""Fixtures and settings of the whole suite: what is started once for all tests that want it."""

import signal

from hypothesis import settings

from tests.support.api_server import api_server

__all__ = ["api_server"]

settings.register_profile("suite", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("suite")

# A suite that was started in the background, or by nohup, inherits signals that are ignored; programs that tests start
# would inherit that too, and a shell cannot even trap what was ignored when it began.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)
