"""The Celery application that both roles share."""

from __future__ import annotations

from typing import Any

from celery import Celery

from harness_worker.adapters.celery.isolation import OwnCelery
from harness_worker.config import Settings
from harness_worker.wire import BROKER_TRANSPORT_OPTIONS, DEFAULT_TOOL_QUEUE

SOCKET_TIMEOUT_S = 1.5
"""How long a hanging broker may hold up the main thread, which looks after pool processes, cancels and the drain. This
must be short, because task events and the search for lost messages hold it up one after the other."""
CHORD_RESULT_TTL_S = 3_600
RESTORE_LOCK_S = 10
"""How long one worker may take to return lost messages to their queues; nobody else does so meanwhile, nor for the
rest of that time if the broker missed that it was done. Two workers at once do no harm: each message is returned in a
transaction."""
CHORD_RESULTS = "harness_worker.adapters.celery.results:ChordResults"


def make_app(settings: Settings, *, redis_url: str, broker_url: str | None = None) -> Celery:
    """Make an application that uses the broker; it does not connect to anything yet.

    Args:
        settings: The worker's settings.
        redis_url: The Redis that joins chords, and is the broker if there is no ``broker_url``.
        broker_url: The broker, if that Redis is not.
    """
    broker = broker_url or redis_url
    app = OwnCelery("harness", broker=broker, backend=f"{CHORD_RESULTS}+{redis_url}", set_as_current=False)
    app.conf.update(_conf(settings, is_redis=broker.startswith("redis")))
    if broker.startswith(("redis://", "rediss://")):  # a URL of Unix sockets chooses its transport itself
        app.conf.broker_transport = "harness_worker.adapters.celery.transport:Transport"
    return app


def _conf(settings: Settings, *, is_redis: bool) -> dict[str, Any]:
    sockets = {"socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": SOCKET_TIMEOUT_S, "socket_keepalive": True}
    redis_options: dict[str, Any] = {
        "visibility_timeout": settings.visibility_timeout_s,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": RESTORE_LOCK_S,
        **BROKER_TRANSPORT_OPTIONS,
        **sockets,
    }
    return {
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "broker_connection_retry_on_startup": True,
        "broker_connection_timeout": 4,
        "broker_transport_options": redis_options if is_redis else {"confirm_publish": True},
        "broker_pool_limit": 20,
        "redis_socket_timeout": SOCKET_TIMEOUT_S,
        "redis_socket_connect_timeout": SOCKET_TIMEOUT_S,
        "redis_socket_keepalive": True,
        "result_expires": CHORD_RESULT_TTL_S,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_track_started": True,
        "task_default_queue": DEFAULT_TOOL_QUEUE,
        "task_create_missing_queues": True,
        "task_publish_retry_policy": {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5},
        "worker_consumer": "harness_worker.adapters.celery.consumer:CarefulConsumer",
        "worker_send_task_events": True,
        "worker_prefetch_multiplier": 1,
        "worker_disable_rate_limits": True,  # the worker would hold messages back, with all its places taken by them
        "worker_enable_prefetch_count_reduction": False,  # threads would undo it, on the main thread's connection
        "worker_deduplicate_successful_tasks": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_proc_alive_timeout": 30.0,
    }
