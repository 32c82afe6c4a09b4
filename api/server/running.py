"""A server as one process, as one of several, or as the parent of these: each until its end."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import structlog

from api.server import child
from api.server.listening import BACKLOG, bracketed, cannot_listen
from api.server.pools import connections
from tagmill.config import Config
from tagmill_wire import collector, tracing

__all__ = ["alone", "child_process", "connections", "parent", "slot"]

log = structlog.get_logger("tagmill.server")


def slot() -> int | None:
    """The place of this process among others, when a parent has started it."""
    found = child.slot_of_environment()
    if found is not None:
        child.ignore_interrupts()
    return found


def alone(config: Config, run_maintenance: bool) -> None:
    # Both start things when they are imported: the reactor, and what the domain registers.
    from twisted.internet import reactor

    from api.server.app import Server

    run: Any = reactor
    server = Server(run, config, run_maintenance)
    host, port = server.start()
    run.callWhenRunning(log.info, "ready", url=f"http://{bracketed(host)}:{port}", pid=os.getpid())
    collector.started()
    run.run()
    end(server.has_ended)


def child_process(config: Config, slot: int) -> None:
    """One process of several. The database has been looked at; it may be down when a process is
    started again, and this one waits for it as the others do."""
    place = child.place(slot, config.processes)
    from twisted.internet import reactor

    from api.server.app import Server

    run: Any = reactor
    server = Server(run, config.of_one_process(), run_maintenance=False, place=place)
    child.watch_parent(run, place.directory, server.lead)
    server.start()
    run.callWhenRunning(child.end_once, run)
    run.callWhenRunning(child.say_ready, place.slot)
    collector.started()
    run.run()
    end(server.has_ended)


def parent(config: Config, run_maintenance: bool) -> int:
    """The process that starts the others; the exit code."""
    listener = listening(config)
    from twisted.internet import reactor

    from api.server.supervisor import Supervisor

    run: Any = reactor
    supervisor = Supervisor(run, config, listener, run_maintenance)
    run.callWhenRunning(child.end_once, run)
    run.callWhenRunning(supervisor.start)
    collector.started()
    run.run()
    return supervisor.exit_code


def end(has_ended: bool) -> None:
    tracing.stop()
    if not has_ended:
        # Python would wait for the threads.
        logging.shutdown()
        os._exit(0)


def listening(config: Config) -> socket.socket:
    """The socket of all processes. Raises ConfigurationError when the address is taken."""
    host, port = config.listen_address
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError as error:
        raise cannot_listen(config.listen, error) from None
    made.setblocking(False)
    return made
