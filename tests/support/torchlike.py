"""A program that does with its environment what `torchrun` does, without torch."""

from __future__ import annotations

MEETING = """
import os, socket, time

nodes, processes, node = (int(os.environ[f"PET_{name}"]) for name in ("NNODES", "NPROC_PER_NODE", "NODE_RANK"))
address = os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"])
world = nodes * processes


def work(rank):
    server = socket.create_server(address) if rank == 0 else None
    while True:
        try:
            mine = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    mine.sendall(b"%d\\n" % rank)
    if server is not None:
        peers = [server.accept()[0] for _ in range(world)]
        total = sum(int(peer.makefile().readline()) for peer in peers)
        for peer in peers:
            peer.sendall(b"%d\\n" % total)
    print(f"{rank}:{int(mine.makefile().readline())}", flush=True)


children = []
for local in range(processes):
    child = os.fork()
    if child == 0:
        work(node * processes + local)
        os._exit(0)
    children.append(child)
raise SystemExit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
"""Each process of each node sends its rank to the first, which sends the sum of all back; prints `rank:sum`."""
