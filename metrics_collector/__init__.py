"""Metrics collection: turns the output of a training program into readings of metrics.

Belongs here: parsers (bytes in, readings out, no I/O), sources that fetch the bytes, early stopping rules evaluated on
the readings, and the reporter that passes readings to an observation log.
Does not belong here: trials, processes, storage. It imports only `katib.model` and `katib.wire.rpc`, because it also
runs as a sidecar.

Data flow: a source of `sources` (a pipe, a file, ...) and a parser of `parsers` -> readings ->
`collector.Collector.take` -> `reporter.Reporter` -> the log.

In a pod `python -m metrics_collector` runs all of it: `sidecar` assembles the parts, `program` watches the training
program and ends it, `delivery` calls the services.
"""
