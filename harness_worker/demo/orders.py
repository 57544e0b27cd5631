"""Reads what the shop knows about an order, within the caller's transaction. Amounts are in cents."""

from __future__ import annotations

import sqlite3
from typing import Final

from harness_worker import ToolError
from harness_worker.demo.database import JsonObject

GIFT_WRAP_CENTS: Final = 400


def find_order(db: sqlite3.Connection, order_id: str) -> JsonObject:
    """An order's row.

    Raises:
        ToolError: There is no such order.
    """
    row = db.execute("SELECT * FROM orders WHERE id = ?", (order_id,)).fetchone()
    if row is None:
        raise ToolError(f"There is no order {order_id}. Ask the customer for its number.")
    return dict(row)


def order_with_total(db: sqlite3.Connection, order_id: str) -> JsonObject:
    """An order with its lines and its total: goods, less the voucher's share, plus gift wrap."""
    order = find_order(db, order_id)
    query = "SELECT sku, quantity, price_cents, state FROM lines WHERE order_id = ? ORDER BY sku"
    lines = [dict(row) for row in db.execute(query, (order_id,))]
    goods = sum(line["quantity"] * line["price_cents"] for line in lines)
    voucher = db.execute("SELECT percent FROM vouchers WHERE code = ?", (order["voucher"],)).fetchone()
    discount = goods * voucher["percent"] // 100 if voucher else 0
    total = goods - discount + (GIFT_WRAP_CENTS if order["gift_wrap"] else 0)
    return {**order, "lines": lines, "total_cents": total}


def refunded_cents(db: sqlite3.Connection, order_id: str) -> int:
    """How much of an order has been paid back."""
    query = "SELECT coalesce(sum(amount_cents), 0) AS cents FROM refunds WHERE order_id = ?"
    return db.execute(query, (order_id,)).fetchone()["cents"]
