"""The file by which clients find the Kubernetes API, and the certificate beside it."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509

from katib.doors.cli.about import kubeconfig
from katib.doors.kube_api.kubeconfig import earlier_port, line_to_copy, write_kubeconfig
from katib.doors.rest.kept_certificate import kept_certificate
from katib.errors import NotFoundError, TerminalError


def names_of(chain: Path) -> set[str]:
    leaf = x509.load_pem_x509_certificate(chain.read_bytes())
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))}


def test_a_certificate_is_made_once_and_its_key_is_for_its_owner(tmp_path: Path) -> None:
    first = kept_certificate(tmp_path, "127.0.0.1")

    assert first == kept_certificate(tmp_path, "127.0.0.1")
    assert stat.S_IMODE(first.key.stat().st_mode) == 0o600
    assert names_of(first.chain) == {"localhost", "127.0.0.1", "::1"}


@pytest.mark.parametrize(("host", "further"), [("0.0.0.0", set()), ("tuning.example.org", {"tuning.example.org"})])
def test_beyond_this_machine_it_has_the_names_that_others_use(tmp_path: Path, host: str, further: set[str]) -> None:
    kept_certificate(tmp_path, "127.0.0.1")
    made = kept_certificate(tmp_path, host)

    assert names_of(made.chain) == {"localhost", "127.0.0.1", "::1", socket.gethostname(), *further}


def test_a_broken_certificate_is_replaced_and_a_directory_that_takes_none_named(tmp_path: Path) -> None:
    first = kept_certificate(tmp_path, "localhost")
    first.chain.write_text("broken")

    assert kept_certificate(tmp_path, "localhost").authority != first.authority

    with pytest.raises(TerminalError, match="cannot be kept"):
        kept_certificate(tmp_path / "none", "localhost")


@pytest.mark.parametrize(("token", "user"), [("secret", {"token": "secret"}), (None, {})])
def test_the_file_names_address_and_token(tmp_path: Path, token: str | None, user: dict[str, str]) -> None:
    path = write_kubeconfig(tmp_path, "https://127.0.0.1:7", b"pem", token)
    config = yaml.safe_load(path.read_text())

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert config["users"][0]["user"] == user
    assert earlier_port(tmp_path) == 7
    path.write_text("[")
    assert earlier_port(tmp_path) == 0


def test_the_line_to_copy_is_printed_where_a_server_has_run(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="start `katib serve`"):
        line_to_copy(tmp_path)
    directory = tmp_path / "with space"
    directory.mkdir()
    write_kubeconfig(directory, "https://127.0.0.1:7", b"pem", None)
    done = CliRunner().invoke(kubeconfig, ["--data-dir", str(directory)])

    assert done.output == f"export KUBECONFIG='{directory}/kubeconfig'\n"
