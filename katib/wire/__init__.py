"""Everything that crosses a socket: messages, connections, listeners, certificates. Knows no verb."""
