"""The connection to a Kubernetes API server: configuration, raw requests in JSON, errors of our tree, discovery.

Belongs here: what any client of Kubernetes needs. Does not belong here: kinds of ours, caches, controllers.
"""

from katib.kube.answers import NamespaceGoneError, NotServedError, NotThisObjectError, watch_error_of
from katib.kube.connection import Connection, open_connection
from katib.kube.discovery import ApiResource, Discovery
from katib.kube.requests import RequestInfo, request_info
from katib.kube.stream import Stream

__all__ = [
    "ApiResource",
    "Connection",
    "Discovery",
    "NamespaceGoneError",
    "NotServedError",
    "NotThisObjectError",
    "RequestInfo",
    "Stream",
    "open_connection",
    "request_info",
    "watch_error_of",
]
