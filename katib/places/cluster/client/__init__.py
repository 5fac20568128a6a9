"""Client of a Kubernetes API server: configuration, requests in plain JSON, typed errors, discovery.

Belongs here: functionality that any Kubernetes client needs. Does not belong here: Katib's kinds, caches, controllers.
"""

from katib.places.cluster.client.answers import NamespaceGoneError, NotServedError, NotThisObjectError, watch_error_of
from katib.places.cluster.client.connection import ApiConnection, open_connection
from katib.places.cluster.client.discovery import ApiResource, Discovery
from katib.places.cluster.client.guarded import GuardedConnection, OpenStreams
from katib.places.cluster.client.requests import RequestInfo, request_info
from katib.places.cluster.client.reviews import KEPT_SECONDS, AccessReviews, NotPermittedError, RbacSubject
from katib.places.cluster.client.stream import ResponseStream
