"""Reads what a training program prints and turns it into readings of metrics.

Belongs here: parsers (bytes in, readings out, no I/O), sources that fetch the bytes, early stopping rules evaluated in
the stream, and the reporter that hands readings to an observation log.
Does not belong here: trials, processes, storage. It imports only `katib.model` and `katib.wire.rpc`, because it also
runs as a sidecar.

The path of a byte: a source of `sources` (a pipe, a file, ...) and a parser of `parsers` -> readings ->
`collector.Collector.take` -> `reporter.Reporter` -> the log.

In a pod `python -m metrics_collector` does all of it: `sidecar` joins the parts, `program` watches the training
program and ends it, `delivery` talks to the services.
"""
