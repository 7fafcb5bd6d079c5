"""Tokens and cost of a call or a run, part by part as far as prices are known."""

import math
from typing import Any, Final

from lockstitch.records import Json, Run, Stitch
from lockstitch.runtime.cost import price
from lockstitch.runtime.provider import Usage
from lockstitch.server.pages.run.parts import Part, note
from lockstitch.store.wording import cost_of

_PARTS: Final = (
    ("Read from cache", "m3", "cache_read_cost"),
    ("Written to cache", "m4", "cache_write_cost"),
    ("New input", "m2", "input_cost"),
    ("Output, thinking in it", "m1", "output_cost"),
)


def by_call(run: Run, stitch: Stitch) -> list[Part]:
    """One model call. Its price was kept when it was made; its parts are worked out again, and shown if they agree."""
    if stitch.input_tokens is None and stitch.output_tokens is None:
        return [note("No tokens were counted.", failed=False)]
    usage = Usage(
        input_tokens=stitch.input_tokens or 0,
        output_tokens=stitch.output_tokens or 0,
        cache_read_tokens=stitch.cache_read_tokens or 0,
        cache_write_tokens=stitch.cache_write_tokens or 0,
    )
    total = cost_of(stitch)
    if total is None or stitch.at is None:
        return [_table(usage, {}, total, None)]
    model = str(stitch.data.get("model") or stitch.name or run.model or "")
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    plain = usage._replace(cache_read_tokens=0, cache_write_tokens=0)
    # By the tables, or by what the whole run was charged: then the prices were the user's own.
    for priced, without in (
        (price(run.provider or "", model, usage, stitch.at), price(run.provider or "", model, plain, stitch.at)),
        (_as_charged(run, usage), _as_charged(run, plain)),
    ):
        if priced and math.isclose(float(priced["total_cost"]), total, rel_tol=1e-6, abs_tol=1e-12):
            return [_table(usage, priced, total, without.get("total_cost") if cached else None)]
    return [_table(usage, {}, total, None)]


def _as_charged(run: Run, usage: Usage) -> Json:
    """What a call costs at the prices that its run was charged, where that has only one price for each part."""
    cost = run.cost
    new = run.input_tokens - run.cache_read_tokens - run.cache_write_tokens
    here = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    parts = (
        ("input_cost", new, here),
        ("output_cost", run.output_tokens, usage.output_tokens),
        ("cache_read_cost", run.cache_read_tokens, usage.cache_read_tokens),
        ("cache_write_cost", run.cache_write_tokens, usage.cache_write_tokens),
    )
    found: Json = {"source": cost.get("source"), "version": cost.get("version")}
    for name, all_tokens, tokens in parts:
        amount: Any = cost.get(name)
        if not isinstance(amount, int | float) or (tokens and not all_tokens):
            return {}
        found[name] = amount / all_tokens * tokens if all_tokens else 0.0
    return {**found, "total_cost": math.fsum(found[name] for name, _, _ in parts)}


def by_run(run: Run) -> list[Part]:
    """All model calls of a run together; it keeps what each part cost."""
    usage = Usage(
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        cache_read_tokens=run.cache_read_tokens,
        cache_write_tokens=run.cache_write_tokens,
    )
    return [_table(usage, run.cost, run.total_cost, None)]


def _table(usage: Usage, priced: Json, total: float | None, without: float | None) -> Part:
    new = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    counts = (usage.cache_read_tokens, usage.cache_write_tokens, new, usage.output_tokens)
    rows: list[Json] = []
    for (name, look, key), tokens in zip(_PARTS, counts, strict=True):
        cost: Any = priced.get(key)
        amount = float(cost) if isinstance(cost, int | float) else None
        each = amount / tokens * 1_000_000 if amount and tokens else None
        rows.append({"name": name, "look": look, "tokens": tokens, "each": each, "cost": amount})
    known = all(row["cost"] is not None for row in rows) and bool(total)
    weights = [row["cost"] if known else row["tokens"] for row in rows]
    whole = sum(weights)
    place = 0.0
    for row, weight in zip(rows, weights, strict=True):
        row["share"] = 100 * weight / whole if whole else 0.0
        row["x"] = place
        place += row["share"]
    return {
        "kind": "tokens",
        "rows": rows,
        "by": "cost" if known else "tokens",
        "tokens": usage.input_tokens + usage.output_tokens,
        "cost": total,
        "without": without,
        "source": priced.get("source"),
        "version": priced.get("version"),
    }
