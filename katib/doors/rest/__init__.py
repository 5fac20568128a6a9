"""The HTTP interface of a tuning service, and its client.

Belongs here: routes, bodies, problem details, request security, streams, the client that speaks to them.
Does not belong here: anything that decides; every route is one call of TuningService.

Import the module you need: `app` (create_app; brings FastAPI), `server` (brings uvicorn), `client` (brings httpx only).
All servers over HTTP listen by `listening`; those that have no routes of FastAPI answer by `blocking`.
"""
