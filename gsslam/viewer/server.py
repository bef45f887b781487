"""The web server of the viewer."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from gsslam.errors import ConfigError
from gsslam.extras import require

if TYPE_CHECKING:
    import viser

# Only this computer can look.
LOOPBACK, DEFAULT_PORT = "127.0.0.1", 8080


def start_server(host: str = LOOPBACK, port: int = DEFAULT_PORT) -> viser.ViserServer:
    """Start a server that runs until it is stopped; port 0 takes any free one.

    Raises ConfigError where viser is not installed, or where host and port cannot be listened on.
    """
    module = require("viser", "viewer", "the viewer")
    _check_free(host, port)
    # A browser that closes a connection before it asked for anything is no news.
    logging.getLogger("websockets.server").setLevel(logging.CRITICAL)
    with _silence():
        server: viser.ViserServer = module.ViserServer(host, port, label="gsslam", verbose=False)
    if port and server.get_port() != port:  # taken in between: it went on to the next one
        stop_server(server)
        raise ConfigError(_in_use(host, port))
    return server


def stop_server(server: viser.ViserServer) -> None:
    """End a server and its connections."""
    # A browser that closes a connection before it asked for anything is no news.
    logging.getLogger("websockets.server").setLevel(logging.CRITICAL)
    with _silence():
        server.stop()


def address_of(server: viser.ViserServer) -> str:
    """Return what is typed into a browser."""
    host = server.get_host()
    name = "localhost" if host in ("0.0.0.0", "::", LOOPBACK) else host
    return f"http://{name}:{server.get_port()}"


def sending_thread(server: viser.ViserServer) -> int:
    """Return the identifier of the thread that sends to the browsers."""
    identifier: Future[int] = Future()
    server.get_event_loop().call_soon_threadsafe(
        lambda: identifier.set_result(threading.get_ident())
    )
    return identifier.result()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep what viser says from stdout, which belongs to whoever called us."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _check_free(host: str, port: int) -> None:
    if not 0 <= port <= 65535:
        raise ConfigError(f"viewer port {port} must be from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"viewer host {host!r} is not known: {error.strerror}") from error
    try:
        with socket.socket(family, kind, protocol) as probe:
            # As the server does: what an earlier one left behind is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        in_use = f"the viewer cannot listen on port {port} of {host}: {error.strerror}"
        raise ConfigError(f"{in_use}; choose another with --viewer-port") from error


def _in_use(host: str, port: int) -> str:
    return f"port {port} of {host} is in use; choose another with --viewer-port"
