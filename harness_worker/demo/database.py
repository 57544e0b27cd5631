"""The shop's own SQLite file: its tables, its fixed goods and orders, and transactions that happen once per key.

It is not the harness's database. Any tool process may open it, even several at once for the first time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from harness_worker.config import load_settings

BUSY_TIMEOUT_S: Final = 5.0
VERSION: Final = 1
JsonObject = dict[str, Any]

_TABLES: Final = """
CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, email TEXT, status TEXT, address TEXT, gift_wrap INTEGER,
                     voucher TEXT, tracking TEXT);
CREATE TABLE lines (order_id TEXT, sku TEXT, quantity INTEGER, price_cents INTEGER, state TEXT);
CREATE TABLE products (sku TEXT PRIMARY KEY, name TEXT, price_cents INTEGER, stock INTEGER);
CREATE TABLE vouchers (code TEXT PRIMARY KEY, customer TEXT, percent INTEGER, expires TEXT);
CREATE TABLE policies (topic TEXT PRIMARY KEY, text TEXT);
CREATE TABLE refunds (id INTEGER PRIMARY KEY, order_id TEXT, amount_cents INTEGER, reason TEXT);
CREATE TABLE emails (id INTEGER PRIMARY KEY, order_id TEXT, recipient TEXT, subject TEXT, body TEXT);
CREATE TABLE effects (seq INTEGER PRIMARY KEY, idempotency_key TEXT UNIQUE, tool TEXT, result TEXT);
"""

_ROWS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "orders": [
        ("1042", "Ingrid Moe", "ingrid@example.org", "packed", "3 Mill Lane, 7010 Trondheim", 0, None, "NP-88121"),
        ("1017", "Omar Haddad", "omar@example.org", "delivered", "8 Queen Street, Leeds", 0, None, "NP-87004"),
        ("1055", "Ana Duarte", "ana@example.org", "paid", "21 Rua do Sol, Porto", 0, None, None),
        ("1060", "Ingrid Moe", "ingrid@example.org", "shipped", "3 Mill Lane, 7010 Trondheim", 0, None, "NP-88190"),
    ],
    "lines": [
        ("1042", "LAMP-OAK", 1, 8900, "packed"),
        ("1042", "BULB-E27", 2, 450, "packed"),
        ("1017", "KETTLE-BLUE", 1, 5400, "delivered"),
        ("1055", "PRESS-GLASS", 1, 3600, "paid"),
        ("1055", "CUP-STONE", 4, 1100, "paid"),
        ("1060", "BULB-E27", 6, 450, "shipped"),
    ],
    "products": [
        ("LAMP-OAK", "Oak desk lamp", 8900, 14),
        ("BULB-E27", "Warm bulb, E27", 450, 320),
        ("KETTLE-BLUE", "Enamel kettle, blue", 5400, 0),
        ("KETTLE-RED", "Enamel kettle, red", 5400, 6),
        ("PRESS-GLASS", "Glass coffee press", 3600, 22),
        ("CUP-STONE", "Stoneware cup", 1100, 75),
    ],
    "vouchers": [("SPRING24", "Ana Duarte", 20, "2024-05-31"), ("THANKS10", "Ana Duarte", 10, "2099-12-31")],
    "policies": [
        ("address change", "An address can be changed until the parcel is handed to the carrier."),
        ("damaged goods", "Damaged goods reported within 30 days: replacement if in stock, else a full refund."),
        ("vouchers", "One voucher an order; expired vouchers are not accepted."),
        ("gift wrap", "Gift wrap costs 4.00 and can be added until the order is packed."),
    ],
}


def shop_file(home: Path | None = None) -> Path:
    """The shop's file: ``shop.db`` in ``home``, or else in ``HARNESS_HOME``."""
    return (home or load_settings().home) / "shop.db"


@contextmanager
def reading() -> Generator[sqlite3.Connection]:
    """A connection that sees one consistent state of the shop, which is created on first use."""
    with _connection(shop_file()) as db:
        db.execute("BEGIN")
        yield db
        db.rollback()


def perform_once(key: str, tool: str, action: Callable[[sqlite3.Connection], JsonObject]) -> JsonObject:
    """Run ``action`` and store its result under ``key``, in one transaction.

    With a key that was seen before, returns the stored result and changes nothing: this makes a tool ``retry_safe``. If
    ``action`` raises, what it did is undone and the key stays unused.
    """
    with _connection(shop_file()) as db, _writing(db):
        seen = db.execute("SELECT result FROM effects WHERE idempotency_key = ?", (key,)).fetchone()
        if seen is not None:
            return json.loads(seen["result"])
        result = action(db)
        row = (key, tool, json.dumps(result, ensure_ascii=False))
        db.execute("INSERT INTO effects (idempotency_key, tool, result) VALUES (?, ?, ?)", row)
        return result


def reset(file: Path) -> None:
    """Reset the shop, so that a demonstration always starts from the same goods and orders."""
    with _connection(file) as db, _writing(db):
        _fill(db)


@contextmanager
def _connection(file: Path) -> Generator[sqlite3.Connection]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        if not _is_made(db):
            _make(db)
        yield db


def _make(db: sqlite3.Connection) -> None:
    with _writing(db):
        if not _is_made(db):  # another process may have been faster
            _fill(db)


def _is_made(db: sqlite3.Connection) -> bool:
    return db.execute("PRAGMA user_version").fetchone()[0] == VERSION


@contextmanager
def _writing(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")  # plain BEGIN fails if two processes both go from reading to writing
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()


def _fill(db: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";"):
        name = statement.strip().removeprefix("CREATE TABLE ").partition(" ")[0]
        if name:
            db.execute(f"DROP TABLE IF EXISTS {name}")
            db.execute(statement)
    for table, rows in _ROWS.items():
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - names from this module
    db.execute(f"PRAGMA user_version = {VERSION}")
