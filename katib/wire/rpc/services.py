"""Clients and servers of the services in `_generated`, made from their descriptors; all calls are unary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType, ModuleType, SimpleNamespace

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # ten thousand trials are more than the default of 4 MiB
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a second server that takes calls in turn
)


def calls_over(channel: grpc.Channel, *modules: ModuleType) -> SimpleNamespace:
    """Return the calls of the services of some generated modules, by the names of their methods."""
    calls = SimpleNamespace()
    for path, method in _methods(modules):
        encode, decode = (
            GetMessageClass(method.input_type).SerializeToString,
            GetMessageClass(method.output_type).FromString,
        )
        setattr(calls, method.name, channel.unary_unary(path, encode, decode))
    return calls


def add_servicer(
    server: grpc.Server,
    servicer: object,
    *modules: ModuleType,
    requests: Mapping[str, type[Message]] = MappingProxyType({}),
) -> None:
    """Serve the calls of some generated modules that a servicer has a method for; others are unimplemented.

    Args:
        servicer: Its methods have the names of the calls; they take a request and the gRPC context.
        requests: Other message classes to decode the requests of some calls with.
    """
    for path, method in _methods(modules):
        if answer := getattr(servicer, method.name, None):
            decode = requests.get(method.name, GetMessageClass(method.input_type)).FromString
            encode = GetMessageClass(method.output_type).SerializeToString
            handlers = {method.name: grpc.unary_unary_rpc_method_handler(answer, decode, encode)}
            service = grpc.method_handlers_generic_handler(path.split("/")[1], handlers)
            server.add_generic_rpc_handlers((service,))


def _methods(modules: Iterable[ModuleType]) -> Iterator[tuple[str, MethodDescriptor]]:
    """Yield the path of each method on the wire, and the method."""
    for module in modules:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield f"/{service.full_name}/{method.name}", method
