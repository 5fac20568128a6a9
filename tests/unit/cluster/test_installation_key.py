"""The key of the installation: anyone who needs it first makes it, and all use the same."""

from __future__ import annotations

import base64
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from katib.engine.runtime.objects import Key
from katib.errors import InvalidError, NotFoundError
from katib.places.cluster.installation_key import SECRET_NAME, InstallationTokens, ensure_keys, read_keys, write_keys
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore

PLACE = Key("kubeflow", SECRET_NAME)
CLAIMS = TokenClaims(CallerRole.TRIAL, "team", "a")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(())


def put(store: MemoryStore, **data: bytes) -> None:
    encoded = {name.replace("_", "-"): base64.b64encode(value).decode() for name, value in data.items()}
    metadata = {"namespace": PLACE.namespace, "name": PLACE.name}
    store.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})


@pytest.mark.parametrize("is_there", [True, False], ids=["empty secret", "no secret"])
def test_the_first_makes_a_key_and_the_others_take_it(store: MemoryStore, *, is_there: bool) -> None:
    if is_there:
        put(store)
    first, second = (ensure_keys(store, PLACE) for _ in range(2))

    assert first == second
    assert len(first[0]) == 32


def test_many_that_are_first_at_once_agree(store: MemoryStore) -> None:
    put(store)
    found: list[Any] = []
    together = Barrier(8)

    def start() -> None:
        together.wait()
        found.append(tuple(ensure_keys(store, PLACE)))

    threads = [Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 1
    assert len(found) == 8


def test_a_key_that_is_taken_out_is_replaced_and_the_previous_one_still_accepted(store: MemoryStore) -> None:
    put(store, previous_key=b"o" * 32)
    running = TokenSigner([b"o" * 32]).token_of(CLAIMS)
    tokens = TokenSigner(ensure_keys(store, PLACE))

    assert tokens.claims_of(running) == CLAIMS
    assert tokens.token_of(CLAIMS) != running


def test_a_key_that_is_none_is_refused_and_not_shown(store: MemoryStore, golden: Golden) -> None:
    put(store, key=b"short")

    with pytest.raises(InvalidError) as caught:
        ensure_keys(store, PLACE)
    golden(caught.value)


def test_a_reader_makes_no_key(store: MemoryStore) -> None:
    put(store)
    tokens = InstallationTokens(store, PLACE, may_make=False)
    with pytest.raises(NotFoundError, match="holds no key yet"):
        tokens()

    ensure_keys(store, PLACE)
    assert tokens().claims_of(InstallationTokens(store, PLACE)().token_of(CLAIMS)) == CLAIMS


def test_a_file_of_keys_is_for_its_owner_alone(store: MemoryStore, tmp_path: Path) -> None:
    keys = ensure_keys(store, PLACE)
    write_keys(tmp_path / "keys", keys)
    write_keys(tmp_path / "keys", keys)

    assert read_keys(tmp_path / "keys") == list(keys)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("write", "cause"),
    [
        pytest.param(lambda path: None, "cannot be read: No such file or directory", id="no file"),
        pytest.param(lambda path: path.write_text(""), "it holds no key", id="empty"),
        pytest.param(lambda path: path.write_text("c2hvcnQ=\n"), "no key of at least 16 bytes", id="short"),
    ],
)
def test_a_file_without_keys_is_refused(tmp_path: Path, write: Callable[[Path], object], cause: str) -> None:
    write(tmp_path / "keys")

    with pytest.raises(InvalidError, match=cause):
        read_keys(tmp_path / "keys")
