"""The shop's tools and its agent: ``harness up --app harness_worker.demo.shop:registry``.

Amounts are in cents of one currency. Different reads have different resource keys, so several reads in one message run
side by side; every write runs alone, in the order of the requests.
"""

from __future__ import annotations

import sqlite3
from threading import Event
from typing import Any, Final

from harness_worker import Effect, Registry, RunContext, ToolError
from harness_worker.config import load_settings
from harness_worker.demo.database import JsonObject, perform_once, reading
from harness_worker.demo.models import model_of
from harness_worker.demo.orders import find_order, order_with_total, refunded_cents

CARRIER_LATENCY_S: Final = 1.5

SYSTEM: Final = """You are the support agent of a small home-goods shop. Look things up before you answer, ask for
everything you need at once, change only what the customer asked for, and confirm changes by e-mail."""

registry = Registry()


# --- reads ------------------------------------------------------------------------------------------------------------


@registry.tool(effect=Effect.READ_ONLY)
def get_order(order_id: str) -> dict[str, Any]:
    """One order: status, address, lines, voucher and what it comes to."""
    with reading() as db:
        return order_with_total(db, order_id)


@registry.tool(effect=Effect.READ_ONLY, timeout_s=8)
def track_shipment(order_id: str) -> dict[str, Any]:
    """Where the carrier says a parcel is. The carrier is slow: allow a second or two."""
    with reading() as db:
        order = find_order(db, order_id)
    Event().wait(CARRIER_LATENCY_S)  # stands in for the carrier's web service
    where = {"packed": "in our warehouse, waiting for the carrier", "delivered": "delivered"}
    return {"tracking": order["tracking"], "location": where.get(order["status"], "on its way")}


@registry.tool(effect=Effect.READ_ONLY)
def get_policy(topic: str) -> str:
    """The shop's rule on a topic: address change, damaged goods, vouchers, gift wrap."""
    with reading() as db:
        row = db.execute("SELECT text FROM policies WHERE topic = ?", (topic,)).fetchone()
        topics = [each["topic"] for each in db.execute("SELECT topic FROM policies ORDER BY topic")]
    if row is None:
        raise ToolError(f"There is no rule on {topic!r}. There are rules on: {', '.join(topics)}.")
    return row["text"]


@registry.tool(effect=Effect.READ_ONLY)
def check_stock(sku: str) -> dict[str, Any]:
    """How many of a product are in the warehouse."""
    with reading() as db:
        row = db.execute("SELECT sku, name, stock FROM products WHERE sku = ?", (sku,)).fetchone()
    if row is None:
        raise ToolError(f"There is no product {sku}. Use search_products to find its number.")
    return dict(row)


@registry.tool(effect=Effect.READ_ONLY)
def search_products(words: str) -> list[dict[str, Any]]:
    """Products whose name has the words in it."""
    with reading() as db:
        rows = db.execute("SELECT * FROM products WHERE name LIKE ? ORDER BY sku", (f"%{words}%",))
        return [dict(row) for row in rows]


@registry.tool(effect=Effect.READ_ONLY)
def list_vouchers(customer: str) -> list[dict[str, Any]]:
    """A customer's vouchers that can be used today."""
    with reading() as db:
        query = "SELECT code, percent, expires FROM vouchers WHERE customer = ? AND expires >= date('now')"
        return [dict(row) for row in db.execute(query, (customer,))]


# --- writes: each does its work and remembers it under the call's key in one transaction ------------------------------


@registry.tool(effect=Effect.LOCAL_WRITE, idempotent=True, retry_safe=True)
def change_address(order_id: str, address: str, ctx: RunContext) -> dict[str, Any]:
    """Send an order to another address; possible until the carrier has it."""

    def change(db: sqlite3.Connection) -> JsonObject:
        order = find_order(db, order_id)
        if order["status"] in {"shipped", "delivered"}:
            raise ToolError(f"Order {order_id} is {order['status']}; its address can no longer be changed.")
        db.execute("UPDATE orders SET address = ? WHERE id = ?", (address, order_id))
        return {"order_id": order_id, "old_address": order["address"], "address": address}

    return perform_once(ctx.idempotency_key, "change_address", change)


@registry.tool(effect=Effect.LOCAL_WRITE, idempotent=True, retry_safe=True)
def open_return(order_id: str, sku: str, reason: str, ctx: RunContext) -> dict[str, Any]:
    """Register a product of an order for return; the customer need not send back broken goods."""

    def register(db: sqlite3.Connection) -> JsonObject:
        state = f"returned: {reason}"
        found = db.execute("UPDATE lines SET state = ? WHERE order_id = ? AND sku = ?", (state, order_id, sku))
        if found.rowcount == 0:
            raise ToolError(f"Order {order_id} has no product {sku}.")
        return {"order_id": order_id, "sku": sku, "state": state}

    return perform_once(ctx.idempotency_key, "open_return", register)


@registry.tool(effect=Effect.DESTRUCTIVE, retry_safe=True)
def refund(order_id: str, amount_cents: int, reason: str, ctx: RunContext) -> dict[str, Any]:
    """Pay money back for an order, never more than it came to."""

    def pay(db: sqlite3.Connection) -> JsonObject:
        left = order_with_total(db, order_id)["total_cents"] - refunded_cents(db, order_id)
        if not 0 < amount_cents <= left:
            raise ToolError(f"Order {order_id} can be refunded up to {left} cents; {amount_cents} were asked for.")
        row = (order_id, amount_cents, reason)
        made = db.execute("INSERT INTO refunds (order_id, amount_cents, reason) VALUES (?, ?, ?)", row)
        return {"refund": made.lastrowid, "order_id": order_id, "amount_cents": amount_cents}

    return perform_once(ctx.idempotency_key, "refund", pay)


@registry.tool(effect=Effect.LOCAL_WRITE, idempotent=True, retry_safe=True)
def add_gift_wrap(order_id: str, ctx: RunContext) -> dict[str, Any]:
    """Wrap an order as a gift; possible until it is packed."""

    def wrap(db: sqlite3.Connection) -> JsonObject:
        order = find_order(db, order_id)
        if order["status"] != "paid":
            raise ToolError(f"Order {order_id} is {order['status']}; it is too late for gift wrap.")
        db.execute("UPDATE orders SET gift_wrap = 1 WHERE id = ?", (order_id,))
        return order_with_total(db, order_id)

    return perform_once(ctx.idempotency_key, "add_gift_wrap", wrap)


@registry.tool(effect=Effect.LOCAL_WRITE, retry_safe=True)
def apply_voucher(order_id: str, code: str, ctx: RunContext) -> dict[str, Any]:
    """Take a voucher's discount off an order; fails if the voucher is unknown or has expired."""

    def apply(db: sqlite3.Connection) -> JsonObject:
        query = "SELECT *, expires < date('now') AS is_expired FROM vouchers WHERE code = ?"
        voucher = db.execute(query, (code,)).fetchone()
        if voucher is None:
            raise ToolError(f"There is no voucher {code}.")
        if voucher["is_expired"]:
            raise ToolError(f"Voucher {code} expired on {voucher['expires']}; use one that list_vouchers shows.")
        db.execute("UPDATE orders SET voucher = ? WHERE id = ?", (code, order_id))
        return order_with_total(db, order_id)

    return perform_once(ctx.idempotency_key, "apply_voucher", apply)


@registry.tool(effect=Effect.NETWORK, retry_safe=True)
def send_email(order_id: str, subject: str, body: str, ctx: RunContext) -> dict[str, Any]:
    """Write to the customer of an order."""

    def send(db: sqlite3.Connection) -> JsonObject:
        recipient = find_order(db, order_id)["email"]
        row = (order_id, recipient, subject, body)
        db.execute("INSERT INTO emails (order_id, recipient, subject, body) VALUES (?, ?, ?, ?)", row)
        return {"sent_to": recipient, "subject": subject}

    return perform_once(ctx.idempotency_key, "send_email", send)


registry.agent(
    "support",
    model=model_of(load_settings()),
    system=SYSTEM,
    tools=[
        get_order, track_shipment, get_policy, check_stock, search_products, list_vouchers,
        change_address, open_return, refund, add_gift_wrap, apply_voucher, send_email,
    ],
    budget={"max_steps": 8, "max_tool_calls": 16, "timeout_s": 60},
)  # fmt: skip
